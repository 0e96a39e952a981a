"""A hundred typed mistakes, each answered in one sentence that says what was probably meant, or what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import call, called
from configs import small_config

CONFIG = small_config(capture={"candidates": 8, "auxiliary": 6})

SETTINGS = [  # audit train config.toml -o x --set …
    ("data.clinets=1", "config.toml: unknown key 'data.clinets'; did you mean 'clients'?"),
    ("data.name=photo", "[data] name = 'photo' is not a data set; did you mean 'photos'?"),
    ("data.name=cifar", "[data] name = 'cifar' is not a data set; did you mean 'cifar10'?"),
    ("data.name=MNIST", "[data] name = 'MNIST' is not a data set; did you mean 'mnist'?"),
    ("data.name=imagenet", "[data] name = 'imagenet' is not a data set; did you mean 'images'?"),
    ("data.partition=dirchlet", "[data]: 'dirchlet' is not a partition; did you mean 'dirichlet'?"),
    ("data.clients=0", "config.toml: data.clients = 0: expected at least 1"),
    ("data.samples_per_client=100000", "2 clients of 100000 records ask for 200000, the training split has 1200"),
    ("data.classes=2", "[data]: classes = 2: digits has 10 classes; leave the key out"),
    ("data.mean=[0.0]", "config.toml: data: mean and std are given together"),
    ("data.statistics=auxilary", "or 'training'; did you mean 'auxiliary'?"),
    ("model.name=mpl", "[model]: unknown model 'mpl'; did you mean 'mlp'?"),
    ("model.name=resnet18", "[model]: unknown model 'resnet18'; known are mlp, logistic, linear,"),
    ("model.name=my.module:net", "repeat its name: --allow-model my.module:net"),
    ("model.options={width=[3]}", "[model]: mlp has no option 'width'; did you mean 'widths'?"),
    ("model.options={activation='rleu'}", "[model]: unknown activation 'rleu'; did you mean 'relu'?"),
    ("local.optimiser=adm", "unknown optimiser 'adm'; did you mean 'adam'?"),
    ("local.optimizer=adam", "unknown key 'local.optimizer'; did you mean 'optimiser'?"),
    ("local.optimiser=SGD", "unknown optimiser 'SGD'; did you mean 'sgd'?"),
    ("local.optimiser=lion", "unknown optimiser 'lion'; known are sgd, momentum, adam, rmsprop"),
    ("local.learning_rate=.1", "unknown key 'local.learning_rate'; did you mean 'lr'?"),
    ("local.lr='0.1'", "local.lr = '0.1': expected a number"),
    ("local.lr=0", "local.lr = 0: expected a number above 0"),
    ("local.batch_size=2.5", "local.batch_size = 2.5: expected a whole number"),
    ("local.momentum=1", "local.momentum = 1: expected a number below 1"),
    ("local={epochs=1, steps=2}", "give epochs or steps, not both"),
    ("scheme.name=lpd", "[scheme] name = 'lpd' is not a scheme; did you mean 'ldp'?"),
    ("scheme.name=dp-sgd", "[scheme] name = 'dp-sgd' is not a scheme; did you mean 'dpsgd'?"),
    ("scheme.noise_multiplier=1", "noise is given by sigma or noise_std here, which are other quantities"),
    ("scheme.noise_multipler=1", "noise is given by sigma or noise_std here, which are other quantities"),
    ("scheme.noise_variance=1", "noise is given by sigma or noise_std here, which are other quantities"),
    ("scheme.sigma_squared=1", "noise is given by sigma or noise_std here, which are other quantities"),
    ("scheme.noise_sdt=1", "[scheme]: unknown key 'noise_sdt'; did you mean 'noise_std'?"),
    ("scheme.max_grad_norm=1", "[scheme]: unknown key 'max_grad_norm'; did you mean 'clip'?"),
    ("scheme.sigm=1", "[scheme]: unknown key 'sigm'; did you mean 'sigma'?"),
    ("scheme.epochs=3", "[scheme]: unknown key 'epochs'; known are"),
    ("scheme.clip=-1", "[scheme]: clip = -1: expected a number above 0 or 'median'"),
    ("scheme.clip=meadian", "[scheme]: clip = 'meadian': expected a number or 'median'; did you mean 'median'?"),
    ("scheme.rounds=0", "[scheme]: rounds = 0: expected at least 1"),
    ("scheme.rounds=ten", "[scheme]: rounds = 'ten': expected a whole number"),
    ("scheme.share=grad", "expected 'gradient', 'update' or 'weights'; did you mean 'gradient'?"),
    ("scheme.noise_std=0.1", "[scheme]: give exactly one of sigma and noise_std (both given)"),
    ("scheme.participants=99", "[scheme]: participants = 99: there are only 2 clients"),
    ("scheme.budget=0.001", "allows no round: the first already costs a claimed 5.299; raise the budget or the noise"),
    ("scheme.dropout=1", "[scheme]: dropout = 1: expected a number below 1"),
    ("capture.rounds=al", "capture.rounds = 'al': expected 'all' or a whole number; did you mean 'all'?"),
    ("capture.rounds=0", "capture.rounds = 0: expected 'all' or at least 1"),
    ("capture.clients=0", "capture.clients = 0: expected a list"),
    ("capture.clients=[0, 'one']", "capture.clients.1 = 'one': expected a whole number"),
    ("capture.clients=[7]", "there is no client 7, clients are 0 to 1"),
    ("capture.candidates=1", "candidates = 1: expected 0 or at least 2, as half of them are members"),
    ("capture.truth=yes", "capture.truth = 'yes': expected true or false"),
    ("audit.unit=clients", "audit.unit = 'clients': expected 'record' or 'client'; did you mean 'client'?"),
    ("audit.adjacency=zeroout", "expected 'zero_out' or 'replace_one'; did you mean 'zero_out'?"),
    ("audit.observer=sever", "observer 'sever' is unknown; did you mean 'server'?"),
    ("audit.delta=1", "audit.delta = 1: expected a number below 1"),
    ("attack.inverson.iterations=1", "[attack.inverson] is not an attack; did you mean 'inversion'?"),
    ("attack.inversion.iteration=1", "[attack.inversion]: unknown key 'iteration'; did you mean 'iterations'?"),
    ("attack.membership-rmia.gamma=2", "[attack.membership-rmia]: the key 'gamma' was taken out; leave it out"),
    ("attack.inversion.objective=cosin", "'euclidean-naive' or 'absolute'; did you mean 'cosine'?"),
    ("attack.inversion.labels=unknown", "labels = 'unknown': expected 'known' or 'inferred'"),
    ("attack.inversion.iterations=many", "iterations = 'many': expected a whole number"),
    ("attack.inversion.preset=theses", "preset = 'theses'; did you mean 'thesis'?"),
    ("attack.canary.drawz=1", "[attack.canary]: unknown key 'drawz'; did you mean 'draws'?"),
    ("attack.canary.protocols=['mechanisms']", "'rounds' or 'end-to-end'; did you mean 'mechanism'?"),
    ("seed=-1", "config.toml: seed = -1: expected at least 0"),
    ("sed=1", "config.toml: unknown key 'sed'; did you mean 'seed'?"),
    ("datas.name=photos", "config.toml: unknown key 'datas'; did you mean 'data'?"),
    ("data=photos", "data = 'photos': expected a table"),
    ("nonsense", "--set 'nonsense' is not of the form table.key=value"),
    ("data=", "--set 'data=' unsets one key, and 'data' is a table; unset its keys: data.KEY="),
    ("scheme.name=", "--set 'scheme.name=': a scheme has a name, which says what its other keys mean"),
    ("scheme={name='ldp'}", "exactly one of sigma and noise_std"),
    ("capture.max_gib=0.000001", "max_gib"),
    ("data={name='mnist', root='.'}", "missing"),
    ("seed=true", "seed"),
    ("seed=1e3", "seed"),
    ("seed=10000000000000000000000", "seed"),
    ("local.lr=inf", "lr"),
    ("local.lr=1e308", "lr"),
    ("scheme.rounds=true", "rounds"),
    ("scheme.rounds=1000000000", "100,000"),
    ("scheme.sigma=nan", "sigma"),
    ("scheme.sigma='1'", "sigma"),
    ("capture.rounds=-1", "capture.rounds"),
    ("capture.clients=[]", "clients"),
    ("capture.clients=[0, 0]", "every client once"),
    ("capture.clients=[-1]", "clients"),
    ("audit.observer='uplink(²)'", "uplink"),
    ("attack.inversion.iterations=inf", "a whole number"),
    ("attack.inversion.objective=[]", "at least one"),
    ("model.options.seed=1", "'seed' is no option"),
    ("data.options.root='x'", "'root' is no option"),
    ("data.partition_options.generator=1", "'generator' is no option"),
    ("data.partition={}", "partition"),
    ("data={name='digits', clients=2, partition='dirichlet', partition_options={alpha='x'}}", "wrong type"),
    ("a=" + "[" * 100_000, "nested too deeply"),
    ("scheme.sigma=1\nclip=2", "more than one value"),
    ("\x1b[31m\n=1", "unknown key"),
]

RUNS = [  # audit run setup -o x …
    ("--attack inverson", "--attack 'inverson' is unknown; did you mean 'inversion'?"),
    ("--attack membership-lria", "--attack 'membership-lria' is unknown; did you mean 'membership-lira'?"),
    ("--attack lira", "--attack 'lira' is unknown; did you mean 'membership-lira'?"),
    ("--atack inversion", "No such option '--atack'."),
    ("--observer sever", "observer 'sever' is unknown; did you mean 'server'?"),
    ("--observer peer", "this setup has a server and no such party; known are server, downlink, model and uplink"),
    ("--set inversion.iteration=3", "unknown key 'iteration'; did you mean 'iterations'?"),
    ("--set inverson.iterations=3", "'inverson' is not an attack; did you mean 'inversion'?"),
    ("--set canary.draws=9", "canary does not run here; name it with --attack canary"),
    ("--set iterations=3", "expected ATTACK.KEY=VALUE, e.g. inversion.iterations=1000"),
    ("--fail-if reidentified", "expected 'METRIC > NUMBER', e.g. 'reidentified > 0.2' or 'level >= high'"),
    ("--fail-if psrn>1", "nothing measures 'psrn'; did you mean 'psnr'?"),
    ("--fail-if level>hig", "'hig' is not a level; did you mean 'high'?"),
    ("--fail-if proven[clients]>1", "'clients' is no unit, adjacency or observer; did you mean 'client'?"),
    ("--fail-if proven>few", "'few' is not a number"),
    ("--fail-if demonstrated>1", "no attack of this run measures demonstrated; add --attack canary"),
    ("--minutes 0", "--minutes 0: expected more than 0"),
    ("--device gpu", "'gpu' cannot be chosen; known are auto, cpu, cuda"),
    ("--lpips-weights nowhere", "the LPIPS weights nowhere do not exist"),
    ("--set inversion.lr=-1", "lr"),
    ("--seed -1", "seed"),
    ("--observer uplink(²)", "unknown"),
    ("--fail-if probability>1", "nothing measures 'probability'; did you mean 'leak_probability'?"),
    ("--fail-if psnr[client]>1", "only claimed, proven, demonstrated, demonstrated_on_condition have rows"),
    ("--fail-if psnr>nan", "'nan' is not a number"),
    ("--fail-if proven[leader]>1", "this run has no row of leader"),
]

LINES = [  # audit …
    ("train config.toml -o x --allow-model mine:net", "the model is 'mlp' of the zoo"),
    ("run setup -o x --attack inversion --set canary.draws=9", "canary does not run here; add --attack canary"),
    ("epsilon --clip 1 --noise-std 1 --rounds 1000000000000", "--rounds 1000000000000: at most 100,000 are priced"),
    ("epsilon --clip 1 --noise-std 1 --sampling poisson", "--sampling says how a --cohort is drawn"),
    (
        "run setup -o x --attack inversion --fail-if auc>0.9",
        "no attack of this run measures auc; add --attack membership-loss",
    ),
    ("run setup -o x --attack inversion --minutes 5", "give one of the two"),
    ("run config.toml -o x", "config.toml is a config: `audit train config.toml -o setup`"),
    ("run results -o x", "results holds results: `audit report results`"),
    (
        "run nowhere -o x",
        "nowhere is not a setup: it has no setup.json; `audit train CONFIG.toml -o nowhere` makes one",
    ),
    ("run setup", "Missing option '-o' / '--output'."),
    ("run setup -o config.toml", "config.toml is a file; what is written here is a folder"),
    ("run setup -o full", "full is not empty and holds no results; choose another folder for -o"),
    ("train nowhere.toml -o x", "there is no config file 'nowhere.toml'; `audit init ldp > config.toml` writes one"),
    ("train setup -o x", "it is a folder; setup is a setup: `audit run setup -o results`"),
    ("train results -o x", "it is a folder; results holds results: `audit report results`"),
    ("train broken.toml -o x", "broken.toml: not valid TOML: Expected ']'"),
    ("train config.toml", "give the setup folder with -o SETUP"),
    ("train config.toml -o full", "full is not empty and holds no setup; choose another folder for -o"),
    ("train config.toml -o x --sed 1", "No such option '--sed'."),
    ("train config.toml -o x --noise-key nokey", "nokey is missing"),
    ("train config.toml -o x --engine loop", "'loop' cannot be chosen; did you mean 'looped'?"),
    ("report setup", "setup is a setup: `audit run setup -o results`"),
    ("report config.toml", "config.toml is a config: `audit train config.toml -o setup`"),
    ("report nowhere", "nowhere/results.json is missing; expected a folder written by `audit run`"),
    ("report results --format htm", "'htm' cannot be chosen; did you mean 'html'?"),
    ("epsilon config.toml --unit clients", "'clients' cannot be chosen; did you mean 'client'?"),
    ("epsilon config.toml --adjacency replaceone", "'replaceone' cannot be chosen; did you mean 'replace_one'?"),
    ("epsilon config.toml --observer serv", "observer 'serv' is unknown; did you mean 'server'?"),
    ("epsilon config.toml --set scheme.clip=1e-160", "clip = 1e-160 is out of range"),  # a division by zero
    ("epsilon config.toml --set local.epochs=1000000000000", "local.epochs = 1000000000000: expected at most 100000"),
    ("epsilon config.toml --delta 2", "--delta 2.0: δ must lie between 1e-100 and 1"),
    ("epsilon config.toml --target-epsilon -1", "a target must be above 0 and finite"),
    ("epsilon results", "results holds results: `audit report results`"),
    ("epsilon setup --results nowhere", "nowhere/results.json is missing"),
    ("check config.toml", "config.toml is a config: `audit train config.toml -o setup`"),
    ("check results", "results holds results: `audit report results`"),
    ("init dpsdg", "'dpsdg' is not a scheme; did you mean 'dpsgd'?"),
    ("init lpd", "'lpd' is not a scheme; did you mean 'ldp'?"),
    ("list scheme", "'scheme' cannot be chosen; did you mean 'schemes'?"),
    ("list planets", "'planets' cannot be chosen; known are schemes, attacks,"),
    ("demmo", "No such command 'demmo'."),
    ("demo -o config.toml", "config.toml is a file; what is written here is a folder"),
    ("advise config.toml --set theory.smoothnes=1", "did you mean smoothness?"),
    ("reproduce geometric-tabel3", "there is no table 'geometric-tabel3'; did you mean 'geometric-table3'?"),
    ("epsilon setup --target-epsilon inf", "finite"),
    ("epsilon setup --delta nan", "δ must lie between"),
    ("run setup -o x --attack canary --set canary.draws=inf", "draws"),
    ("run setup -o x --attack canary --set canary.client=-1", "client = -1"),
    ("run setup -o x --attack canary --set canary.numbers=nan", "numbers"),
    ("run setup -o x --attack inversion --set inversion.lr=[]", "lr = []"),
    ("run setup -o config.toml/x", "Not a directory"),
    ("check " + "a" * 5000, "too long"),
    ("train . -o x", "cannot be read"),
]

MISTAKES = [
    *((("train", "config.toml", "-o", "x", "--set", change), answer) for change, answer in SETTINGS),
    *((("run", "setup", "-o", "x", *more.split(" ", 1)), answer) for more, answer in RUNS),
    *((tuple(line.split()), answer) for line, answer in LINES),
]
INNER = (
    "constrained",
    "literal[",
    "Literal",
    "function-",
    "union",
    "input should",
    "valid integer",
    "pydantic",
    "NoneType",
    "internal",
    "Traceback",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "config.toml").write_text(CONFIG)
    (folder / "broken.toml").write_text("[data\nname = 1")
    (folder / "full").mkdir()
    (folder / "full" / "letter.txt").write_text("mine")
    assert call("train", folder / "config.toml", "-o", folder / "setup") == 0
    assert call("run", folder / "setup", "-o", folder / "results", "--attack", "membership-loss") == 0
    return folder


def test_there_are_more_than_the_59_that_were_tried():
    assert len(MISTAKES) == len(dict(MISTAKES)) >= 59 * 2


@pytest.mark.parametrize(("typed", "answer"), MISTAKES, ids=[" ".join(typed)[:100] for typed, _ in MISTAKES])
def test_a_mistake_gets_one_sentence_and_writes_nothing(home, monkeypatch, capsys, typed, answer):
    monkeypatch.chdir(home)
    before = sorted(home.rglob("*"))
    code, _, error = called(capsys, *typed)
    assert code == 2 and error.startswith("audit: ") and len(error) < 700 and error.isprintable(), error
    assert answer in error
    assert not [word for word in INNER if word in error]
    assert sorted(home.rglob("*")) == before
