// Start every part; the header last, because it lists the sections that have something to show.

startTheme(byId("theme"));
startHeadline();
startTradeoff();
startLadder();
startExploration();
if (!STUDY.searches.some((s) => s.landscape || s.rounds.length)) byId("ladder").hidden = true;
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
if (byId("cost").hidden && byId("training-chart").closest(".card").hidden) byId("training").hidden = true;
startProvenance();
startHeader();
document.documentElement.dataset.ready = "true";
