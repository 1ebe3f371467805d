-- LOOK: the whole cluster, for a person. Changes nothing.
-- USES cluster view
-- KEYS[1] ns              namespace of the bot
-- RETURNS {head, view, note, why guarded, budget}   budget: the fields of the hash, flat
return {
  head(), all(), call('HGET', STATE, 'note') or '', call('HGET', STATE, 'guarded') or '', call('HGETALL', BUDGET),
}
