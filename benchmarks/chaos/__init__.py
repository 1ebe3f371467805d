"""What the benchmark ``soak`` is made of: a schedule from a seed, hands that carry it out, traffic, and a checker.

| module | |
|---|---|
| ``schedule`` | what is done to the fleet and when; a pure function of the seed |
| ``fleet`` | pods of all pools on a server that keeps its data, each behind a network of its own |
| ``hands`` | does to the fleet what the schedule says, undoes it, and notes who was harmed from when to when |
| ``traffic`` | a producer that knows what was accepted |
| ``tasks`` | what the pods run; each start and end is recorded on another server |
| ``checker`` | what was lost, doubled, leaked: from the producer's word, the records, the journal and the harms |
| ``growth`` | memory and open files of the processes that lived long |
| ``story`` | what is told, and kept, about a fault |
"""
