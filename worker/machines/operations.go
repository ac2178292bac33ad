package machines

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/worker/state"
)

// machineRequest contains the parameters of a run on a machine. Each operation uses only some of the fields.
type machineRequest struct {
	Machine bourse.MachineID  `json:"machine"`
	Boot    int               `json:"boot,omitempty"`
	Signal  bourse.Signal     `json:"signal,omitempty"`  // stop signal; "" for the machine's default
	Timeout time.Duration     `json:"timeout,omitempty"` // stop timeout; 0 for the machine's default
	Until   time.Time         `json:"until,omitzero"`    // deadline for starting an order's machine, or for pulling an update's image
	Version bourse.InstanceID `json:"version,omitempty"` // the version that an update creates
}

// machineResult is the result of a run. It is empty, because the run's outcome is stored in the machine's record.
type machineResult struct{}

type (
	machineRun = fsm.Run[machineRequest, machineResult]
	machineDef = fsm.Def[machineRequest, machineResult]
)

// definitions contains the operations that change machines on the host. The engine executes the operations on the same
// machine one after the other. A step may run more than once.
type definitions struct {
	plain          launches // for host programs without attachments
	pulled         launches // for programs that pollers run
	attached       launches // for machines with attachments
	stop           *machineDef
	suspend        *machineDef
	resume         *machineDef
	destroy        *machineDef
	ready          *machineDef // pulls an update's image and begins the update; uses a separate queue, so that the machine can still be changed
	delayedRestart *machineDef // waits for a restart policy's backoff, in a separate queue
}

// launches contains the operations that prepare and start machines of one kind.
type launches struct {
	create  *machineDef // starts an order's machine, or removes all traces of it
	prepare *machineDef // prepares an order's machine without starting it
	start   *machineDef // starts a machine again, on request or as its restart policy requires
	restart *machineDef
	update  *machineDef // stops the current version, and launches the next one
}

// of returns the operations for m's kind of machine.
func (d *definitions) of(m *bourse.Machine) *launches {
	switch {
	case m.Config.ImageKind() == bourse.PollerImage:
		return &d.pulled
	case isHostProgram(m):
		return &d.plain
	}
	return &d.attached
}

const (
	launchAttempts = 5 // maximum number of attempts to launch a machine or freeze its program; launchFailed makes exceptions
	stopLimit      = bourse.MaxStopTimeout + time.Minute
)

func define(name string) *machineDef { return fsm.Define[machineRequest, machineResult](name) }

func (ms *Machines) define() {
	// These steps keep retrying, for example while containerd is down. No data is lost in the meantime.
	patient := fsm.StepOptions{Timeout: stopLimit, Attempts: 200}
	freezing := fsm.StepOptions{Timeout: 10 * time.Minute, Attempts: 200}  // a virtual machine's memory is written to a disk
	waiting := fsm.StepOptions{Attempts: -1, MaxBackoff: 10 * time.Second} // launchFailed decides when to give up
	handing := fsm.StepOptions{Timeout: bourse.MaxOrderTimeout + time.Minute}
	forever := fsm.StepOptions{Timeout: bourse.MaxOrderTimeout, Attempts: -1, MaxBackoff: 10 * time.Second}
	ms.defs = definitions{
		plain: launches{
			create:  define("machine.create").Step("launch", ms.createLaunch, waiting),
			prepare: define("machine.prepare").Step("prepare", ms.prepareStep),
			start:   define("machine.start").Step("launch", ms.startLaunch, waiting),
			restart: define("machine.restart").
				Step("stop", ms.stopStep, patient).
				Step("boot", ms.rebootStep).
				Step("launch", ms.startLaunch, waiting),
			update: define("machine.update").
				Step("stop", ms.replaceStep, patient).
				Step("swap", ms.nextVersionStep).
				Step("launch", ms.startLaunch, waiting).
				OnCancel(ms.stopUpdate, patient),
		},
		pulled: launches{
			create:  define("machine.create.pulled").Step("launch", ms.createLaunch, handing),
			prepare: define("machine.prepare.pulled").Step("prepare", ms.prepareStep),
			start:   define("machine.start.pulled").Step("launch", ms.startLaunch, handing),
			restart: define("machine.restart.pulled").
				Step("stop", ms.stopStep, patient).
				Step("boot", ms.rebootStep).
				Step("launch", ms.startLaunch, handing),
			update: define("machine.update.pulled").
				Step("stop", ms.replaceStep, patient).
				Step("swap", ms.nextVersionStep).
				Step("launch", ms.startLaunch, handing).
				OnCancel(ms.stopUpdate, patient),
		},
		attached: launches{
			create: define("machine.create.fitted").
				Step("pull", ms.pullStep, forever).
				Step("attach", ms.createAttach, forever).
				Step("launch", ms.createLaunch, forever),
			prepare: define("machine.prepare.fitted").
				Step("pull", ms.pullStep, forever).
				Step("prepare", ms.prepareStep),
			start: define("machine.start.fitted").
				Step("attach", ms.startAttach, forever).
				Step("launch", ms.startLaunch, forever),
			restart: define("machine.restart.fitted").
				Step("stop", ms.stopStep, patient).
				Step("boot", ms.rebootStep).
				Step("attach", ms.startAttach, forever).
				Step("launch", ms.startLaunch, forever),
			update: define("machine.update.fitted").
				Step("stop", ms.replaceStep, patient).
				Step("swap", ms.nextVersionStep).
				Step("attach", ms.startAttach, forever).
				Step("launch", ms.startLaunch, forever).
				OnCancel(ms.stopUpdate, patient),
		},
		stop:    define("machine.stop").Step("stop", ms.stopStep, patient),
		suspend: define("machine.suspend").Step("freeze", ms.freezeStep, freezing),
		resume:  define("machine.resume").Step("thaw", ms.thawStep, freezing),
		destroy: define("machine.destroy").
			Step("kill", ms.killStep, patient).
			Step("remove", ms.removeStep, patient),
		ready: define("machine.ready").
			Step("resolve", ms.readyResolve, forever).
			Step("pull", ms.readyPull, forever).
			Step("begin", ms.readyBegin, forever).
			OnCancel(ms.dropUpdate),
		delayedRestart: define("machine.revive").Step("start", ms.restartStep),
	}
	d := &ms.defs
	ms.state.Engine.Register(d.stop, d.suspend, d.resume, d.destroy, d.ready, d.delayedRestart)
	for _, l := range []*launches{&d.plain, &d.pulled, &d.attached} {
		ms.state.Engine.Register(l.create, l.prepare, l.start, l.restart, l.update)
	}
}

// mayHaveTask reports whether the driver may have a task for m. That is the case if m was started and the exit of its
// latest boot is not recorded yet.
func mayHaveTask(m *bourse.Machine) bool { return m.Boot.Number > 0 && m.Boot.Exit == nil }

// begin starts a run on a machine. In the same transaction, it calls write to record the operation's intent. begin
// never joins a run in progress, because that run may already have finished its work. write must therefore check the
// machine's state to decide whether anything is left to do.
func (ms *Machines) begin(ctx context.Context, def *machineDef, req machineRequest, write fsm.Write) (*fsm.Handle[machineResult], error) {
	run, err := def.Start(ctx, ms.state.Engine, state.OfMachine(req.Machine), req, fsm.StartOptions{Queue: true, Write: write})
	if err == nil {
		ms.state.Machines.Applied(req.Machine)
	}
	return run, err
}
