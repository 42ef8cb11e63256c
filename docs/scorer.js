// How the search ranks pages: guides before the reference, and what maintainers read last.
const FACTORS = [[/^(how-to|recipes|spark)\//, 3], [/^(contributing|spark\/performance|topics\/(architecture|performance))/, 0.2], [/^reference\//, 0.6]];
var Scorer = {
  score: ([docname, , , , score]) => {
    const found = FACTORS.find(([pattern]) => pattern.test(docname));
    return found ? score * found[1] : score;
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
