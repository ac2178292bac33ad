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
	create  *machineDef // an order's machine: launch, or leave nothing
	prepare *machineDef // an order's machine that is not launched
	start   *machineDef // a stopped machine, or one that its policy restarts
	stop    *machineDef
	restart *machineDef
	destroy *machineDef
	revive  *machineDef // waits out a restart policy's backoff, on a queue of its own
}

const (
	launchAttempts = 5 // of a driver that is not there
	stopLimit      = bourse.MaxStopTimeout + time.Minute
)

func (w *Worker) define() {
	patient := fsm.StepOptions{Timeout: stopLimit}
	w.defs = definitions{
		create:  fsm.Define[machineRequest, machineResult]("machine.create").Step("launch", w.createLaunch),
		prepare: fsm.Define[machineRequest, machineResult]("machine.prepare").Step("prepare", w.prepareStep),
		start:   fsm.Define[machineRequest, machineResult]("machine.start").Step("launch", w.startLaunch),
		stop:    fsm.Define[machineRequest, machineResult]("machine.stop").Step("stop", w.stopStep, patient),
		restart: fsm.Define[machineRequest, machineResult]("machine.restart").
			Step("stop", w.stopStep, patient).
			Step("boot", w.rebootStep).
			Step("launch", w.startLaunch),
		destroy: fsm.Define[machineRequest, machineResult]("machine.destroy").
			Step("kill", w.killStep, patient).
			Step("remove", w.removeStep),
		revive: fsm.Define[machineRequest, machineResult]("machine.revive").Step("start", w.reviveStep),
	}
	d := &w.defs
	w.engine.Register(d.create, d.prepare, d.start, d.stop, d.restart, d.destroy, d.revive)
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
