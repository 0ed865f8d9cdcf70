-- Hints carry no run any more, so none is sealed. The secret of the store stays.

drop function tenure.sealed(text);
