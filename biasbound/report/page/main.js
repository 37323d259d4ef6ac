// Start every part; the header last, because it lists the sections that have something to show.

startTheme(byId("theme"));
startHeadline();
startTradeoff();
startLadder();
startExploration();
if (!STUDY.searches.length) byId("ladder").hidden = true;
startBiases();
startChain();
startGradients();
if (!STUDY.models.some((m) => m.bias || m.chain.length || m.gradients.length)) byId("chain").hidden = true;
startPlayer();
startSeries();
startSplit();
startSpectra();
startTraining();
startCost();
startProvenance();
startHeader();
document.documentElement.dataset.ready = "true";
