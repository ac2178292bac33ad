package worker

import (
	"context"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fsm"
)

// machineRequest is what every run about a machine is asked.
type machineRequest struct {
	Machine bourse.MachineID `json:"machine"`
	Boot    int              `json:"boot,omitempty"`
	Signal  bourse.Signal    `json:"signal,omitempty"`  // of a stop; "" means the machine's own
	Timeout time.Duration    `json:"timeout,omitempty"` // of a stop; 0 means the machine's own
	Until   time.Time        `json:"until,omitzero"`    // deadline of the order whose machine is not plain
}

// machineResult is empty: a run's result is the machine's record.
type machineResult struct{}

type (
	machineRun = fsm.Run[machineRequest, machineResult]
	machineDef = fsm.Def[machineRequest, machineResult]
)

// definitions are the operations that touch the host. They are serialised per
// machine.
type definitions struct {
	plain   launches // of programs of the host and nothing else
	pulled  launches // of programs that a poller runs
	fitted  launches // of all others
	stop    *machineDef
	destroy *machineDef
	revive  *machineDef // waits out a restart policy's backoff, on a queue of its own
}

// launches are the operations that start machines.
type launches struct {
	create  *machineDef // an order's machine: launch, or leave nothing
	prepare *machineDef // an order's machine that is not launched
	start   *machineDef // a stopped machine, or one that its policy restarts
	restart *machineDef
}

// of gives the operations that start m.
func (d *definitions) of(m *bourse.Machine) *launches {
	switch {
	case isPull(m.Config.Image):
		return &d.pulled
	case plain(m):
		return &d.plain
	}
	return &d.fitted
}

const (
	launchAttempts = 5 // of a driver that is not there
	stopLimit      = bourse.MaxStopTimeout + time.Minute
)

func define(name string) *machineDef { return fsm.Define[machineRequest, machineResult](name) }

func (w *Worker) define() {
	// Nothing is lost while one of the host's daemons is away; it comes back.
	patient := fsm.StepOptions{Timeout: stopLimit, Attempts: 200}
	handing := fsm.StepOptions{Timeout: bourse.MaxWithin + time.Minute}
	forever := fsm.StepOptions{Timeout: bourse.MaxWithin, Attempts: -1, MaxBackoff: 10 * time.Second}
	w.defs = definitions{
		plain: launches{
			create:  define("machine.create").Step("launch", w.createLaunch),
			prepare: define("machine.prepare").Step("prepare", w.prepareStep),
			start:   define("machine.start").Step("launch", w.startLaunch),
			restart: define("machine.restart").
				Step("stop", w.stopStep, patient).
				Step("boot", w.rebootStep).
				Step("launch", w.startLaunch),
		},
		pulled: launches{
			create:  define("machine.create.pulled").Step("launch", w.createLaunch, handing),
			prepare: define("machine.prepare.pulled").Step("prepare", w.prepareStep),
			start:   define("machine.start.pulled").Step("launch", w.startLaunch, handing),
			restart: define("machine.restart.pulled").
				Step("stop", w.stopStep, patient).
				Step("boot", w.rebootStep).
				Step("launch", w.startLaunch, handing),
		},
		fitted: launches{
			create: define("machine.create.fitted").
				Step("pull", w.pullStep, forever).
				Step("attach", w.createAttach, forever).
				Step("launch", w.createLaunch, forever),
			prepare: define("machine.prepare.fitted").
				Step("pull", w.pullStep, forever).
				Step("prepare", w.prepareStep),
			start: define("machine.start.fitted").
				Step("attach", w.startAttach, forever).
				Step("launch", w.startLaunch, forever),
			restart: define("machine.restart.fitted").
				Step("stop", w.stopStep, patient).
				Step("boot", w.rebootStep).
				Step("attach", w.startAttach, forever).
				Step("launch", w.startLaunch, forever),
		},
		stop: define("machine.stop").Step("stop", w.stopStep, patient),
		destroy: define("machine.destroy").
			Step("kill", w.killStep, patient).
			Step("remove", w.removeStep, patient),
		revive: define("machine.revive").Step("start", w.reviveStep),
	}
	d := &w.defs
	w.engine.Register(d.stop, d.destroy, d.revive)
	for _, l := range []*launches{&d.plain, &d.pulled, &d.fitted} {
		w.engine.Register(l.create, l.prepare, l.start, l.restart)
	}
	w.defineVolumes()
}

const (
	machinePrefix = "machine/"
	revivePrefix  = "revive/"
)

func resourceOf(id bourse.MachineID) string { return machinePrefix + string(id) }

// machineOf names the machine that a run is about.
func machineOf(resource string) (bourse.MachineID, bool) {
	id, ok := strings.CutPrefix(resource, machinePrefix)
	if !ok {
		id, ok = strings.CutPrefix(resource, revivePrefix)
	}
	return bourse.MachineID(id), ok
}

// taskOf names the task of a machine's latest boot.
func taskOf(m *bourse.Machine) driver.TaskID {
	return driver.TaskID{Machine: m.ID, Boot: m.Boot.Number}
}

// alive tells whether m's latest boot may have a task whose end is not
// recorded.
func alive(m *bourse.Machine) bool { return m.Boot.Number > 0 && m.Boot.Exit == nil }

// begin starts a run on a machine whose intent is recorded by write in the
// same transaction. It never joins a run that is under way: that one may be
// past its work already, so write decides, by the machine's state, whether
// there is anything left to do.
func (w *Worker) begin(ctx context.Context, def *machineDef, req machineRequest, write fsm.Write) (*fsm.Handle[machineResult], error) {
	run, err := def.Start(ctx, w.engine, resourceOf(req.Machine), req, fsm.StartOptions{Queue: true, Write: write})
	if err == nil {
		w.machineChanged(req.Machine)
	}
	return run, err
}
