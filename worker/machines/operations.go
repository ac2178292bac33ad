package machines

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/worker/admit"

	"github.com/bourse-dev/bourse/worker/state"
)

// machineRequest is what every run about a machine is asked.
type machineRequest struct {
	Machine bourse.MachineID  `json:"machine"`
	Boot    int               `json:"boot,omitempty"`
	Signal  bourse.Signal     `json:"signal,omitempty"`  // of a stop; "" means the machine's own
	Timeout time.Duration     `json:"timeout,omitempty"` // of a stop; 0 means the machine's own
	Until   time.Time         `json:"until,omitzero"`    // deadline of the order whose machine is not plain, and of the image of an update
	Version bourse.InstanceID `json:"version,omitempty"` // that an update makes
}

// machineResult is empty: a run's result is the machine's record.
type machineResult struct{}

type (
	machineRun = fsm.Run[machineRequest, machineResult]
	machineDef = fsm.Def[machineRequest, machineResult]
)

// operations are what is done to machines on the host: each is a run, whose
// steps may execute again.
type operations struct {
	state *state.State
	host  *admit.Host
	defs  definitions

	drivers  *drivers
	images   *Images
	fittings *Attachments
	volumes  Volumes
	tasks    Tasks
	secrets  Secrets

	policy Policy
	awake  func(*bourse.Machine) []string

	watched watching
}

// definitions are the operations that touch the host. They are serialised per
// machine.
type definitions struct {
	plain   launches // of programs of the host and nothing else
	pulled  launches // of programs that a poller runs
	fitted  launches // of all others
	stop    *machineDef
	suspend *machineDef
	resume  *machineDef
	destroy *machineDef
	ready   *machineDef // gets the image of an update, on a queue of its own, and begins the update
	revive  *machineDef // waits out a restart policy's backoff, on a queue of its own
}

// launches are the operations that start machines.
type launches struct {
	create  *machineDef // an order's machine: launch, or leave nothing
	prepare *machineDef // an order's machine that is not launched
	start   *machineDef // a stopped machine, or one that its policy restarts
	restart *machineDef
	update  *machineDef // ends a version, if it runs, and launches the next
}

// of returns the operations that start m.
func (d *definitions) of(m *bourse.Machine) *launches {
	switch {
	case m.Config.ImageKind() == bourse.PollerImage:
		return &d.pulled
	case IsPlain(m):
		return &d.plain
	}
	return &d.fitted
}

const (
	launchAttempts = 5 // of a driver that is not there
	stopLimit      = bourse.MaxStopTimeout + time.Minute
)

func define(name string) *machineDef { return fsm.Define[machineRequest, machineResult](name) }

func (o *operations) define() {
	// Nothing is lost while one of the host's daemons is away; it comes back.
	patient := fsm.StepOptions{Timeout: stopLimit, Attempts: 200}
	freezing := fsm.StepOptions{Timeout: time.Minute, Attempts: 200}
	waiting := fsm.StepOptions{Attempts: -1, MaxBackoff: 10 * time.Second} // notLaunched says for how long
	handing := fsm.StepOptions{Timeout: bourse.MaxWithin + time.Minute}
	forever := fsm.StepOptions{Timeout: bourse.MaxWithin, Attempts: -1, MaxBackoff: 10 * time.Second}
	o.defs = definitions{
		plain: launches{
			create:  define("machine.create").Step("launch", o.createLaunch, waiting),
			prepare: define("machine.prepare").Step("prepare", o.prepareStep),
			start:   define("machine.start").Step("launch", o.startLaunch, waiting),
			restart: define("machine.restart").
				Step("stop", o.stopStep, patient).
				Step("boot", o.rebootStep).
				Step("launch", o.startLaunch, waiting),
			update: define("machine.update").
				Step("stop", o.replaceStep, patient).
				Step("swap", o.swapStep).
				Step("launch", o.startLaunch, waiting).
				OnCancel(o.stopUpdate, patient),
		},
		pulled: launches{
			create:  define("machine.create.pulled").Step("launch", o.createLaunch, handing),
			prepare: define("machine.prepare.pulled").Step("prepare", o.prepareStep),
			start:   define("machine.start.pulled").Step("launch", o.startLaunch, handing),
			restart: define("machine.restart.pulled").
				Step("stop", o.stopStep, patient).
				Step("boot", o.rebootStep).
				Step("launch", o.startLaunch, handing),
			update: define("machine.update.pulled").
				Step("stop", o.replaceStep, patient).
				Step("swap", o.swapStep).
				Step("launch", o.startLaunch, handing).
				OnCancel(o.stopUpdate, patient),
		},
		fitted: launches{
			create: define("machine.create.fitted").
				Step("pull", o.pullStep, forever).
				Step("attach", o.createAttach, forever).
				Step("launch", o.createLaunch, forever),
			prepare: define("machine.prepare.fitted").
				Step("pull", o.pullStep, forever).
				Step("prepare", o.prepareStep),
			start: define("machine.start.fitted").
				Step("attach", o.startAttach, forever).
				Step("launch", o.startLaunch, forever),
			restart: define("machine.restart.fitted").
				Step("stop", o.stopStep, patient).
				Step("boot", o.rebootStep).
				Step("attach", o.startAttach, forever).
				Step("launch", o.startLaunch, forever),
			update: define("machine.update.fitted").
				Step("stop", o.replaceStep, patient).
				Step("swap", o.swapStep).
				Step("attach", o.startAttach, forever).
				Step("launch", o.startLaunch, forever).
				OnCancel(o.stopUpdate, patient),
		},
		stop:    define("machine.stop").Step("stop", o.stopStep, patient),
		suspend: define("machine.suspend").Step("freeze", o.freezeStep, freezing),
		resume:  define("machine.resume").Step("thaw", o.thawStep, freezing),
		destroy: define("machine.destroy").
			Step("kill", o.killStep, patient).
			Step("remove", o.removeStep, patient),
		ready: define("machine.ready").
			Step("resolve", o.readyResolve, forever).
			Step("pull", o.readyPull, forever).
			Step("begin", o.readyBegin, forever).
			OnCancel(o.dropUpdate),
		revive: define("machine.revive").Step("start", o.reviveStep),
	}
	d := &o.defs
	o.state.Engine.Register(d.stop, d.suspend, d.resume, d.destroy, d.ready, d.revive)
	for _, l := range []*launches{&d.plain, &d.pulled, &d.fitted} {
		o.state.Engine.Register(l.create, l.prepare, l.start, l.restart, l.update)
	}
}

// alive reports whether m's latest boot may have a task whose end is not
// recorded.
func alive(m *bourse.Machine) bool { return m.Boot.Number > 0 && m.Boot.Exit == nil }

// begin starts a run on a machine whose intent is recorded by write in the
// same transaction. It never joins a run that is in progress: that one may be
// past its work already, so write decides, by the machine's state, whether
// there is anything left to do.
func (o *operations) begin(ctx context.Context, def *machineDef, req machineRequest, write fsm.Write) (*fsm.Handle[machineResult], error) {
	run, err := def.Start(ctx, o.state.Engine, state.OfMachine(req.Machine), req, fsm.StartOptions{Queue: true, Write: write})
	if err == nil {
		o.state.Machines.Changed(req.Machine)
	}
	return run, err
}
