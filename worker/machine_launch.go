package worker

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// launch starts the task of a machine that is recorded as starting. The
// driver's start is idempotent by boot number, so after a crash it finds the
// task that was started and only the record is made up for. failed records
// that the task cannot be started at all.
func (w *Worker) launch(ctx context.Context, r *machineRun, failed func(*store.Tx, *bourse.Machine, error) error) fsm.Outcome {
	var m bourse.Machine
	err := w.store.View(func(tx *store.Tx) error {
		var err error
		m, err = readMachine(tx, r.Request.Machine, recentEvents-1)
		return err
	})
	if err != nil {
		return fsm.Abort(err)
	}
	if m.State != bourse.StateStarting { // stopped or destroyed before it came to this
		return fsm.Abort(bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is %s", m.ID, m.State))
	}
	status, err := w.cfg.Driver.Start(ctx, w.task(&m))
	if err != nil {
		final := bourse.CodeOf(err) == bourse.CodeInvalid || r.Attempt+1 >= launchAttempts
		if !final {
			return fsm.Retry(err)
		}
		return fsm.Abort(err, inTx(func(tx *store.Tx) error { return failed(tx, &m, err) }))
	}
	w.watch(status.ID)
	now := time.Now().UTC()
	w.applied.put(withStart(m, status, now))
	return fsm.Done(inTx(func(tx *store.Tx) error { return recordStart(tx, status, now) })).Relaxed()
}

// withStart gives m as recordStart will leave it, unless it is asked to end in
// the same moment.
func withStart(m bourse.Machine, s driver.Status, now time.Time) bourse.Machine {
	event := started(&m, s)
	m.UpdatedAt = now
	event.ID, event.From, event.Instance = eventID(&m, event), bourse.StateStarting, m.Instance
	m.LastEvents = append([]bourse.Event{event}, m.LastEvents...)
	return m
}

// recordStart writes that a task runs. The event bears the driver's time, so
// it is the same however often it is told.
func recordStart(tx *store.Tx, s driver.Status, now time.Time) error {
	_, err := changeMachineAt(tx, s.ID.Machine, now, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if m.Boot.Number != s.ID.Boot || m.Boot.Exit != nil {
			return false, nil, nil
		}
		if m.State != bourse.StateStarting { // asked to end in the meantime: the next run does that
			m.Boot.PID = s.PID
			return true, nil, nil
		}
		return true, []bourse.Event{started(m, s)}, nil
	})
	return err
}

// started makes m one that runs, and gives the event of it.
func started(m *bourse.Machine, s driver.Status) bourse.Event {
	m.Boot.PID, m.State = s.PID, bourse.StateStarted
	return bourse.Event{Type: bourse.EventStart, State: m.State, Source: bourse.SourceWorker, At: s.StartedAt.UTC()}
}

// recordBoot writes the intent of a machine's next start.
func recordBoot(m *bourse.Machine, port int) {
	m.State = bourse.StateStarting
	m.Boot.Number++
	m.Boot.PID, m.Boot.Port = 0, port
	m.Boot.Requested, m.Boot.Exit = false, nil
}

// task gives what the driver shall run for m's latest boot.
func (w *Worker) task(m *bourse.Machine) driver.Task {
	guest := m.Config.Guest
	limits := driver.Limits{Memory: guest.MemoryMB}
	if guest.CPUKind == bourse.CPUPerformance {
		limits.CPUWeight = bourse.MilliCPU(guest.CPUs * 1000)
		limits.CPUQuota = limits.CPUWeight
	} else {
		limits.CPUWeight = bourse.MilliCPU(m.Takes.Of(bourse.ResourceCPU))
		limits.CPUQuota = bourse.MilliCPU(guest.CPUs * 1000)
	}
	return driver.Task{
		ID: taskOf(m), Image: m.Config.Image, Command: m.Config.Init.Command(),
		Env: environment(m), Dir: m.Config.Init.WorkingDir, User: m.Config.Init.User, Limits: limits,
	}
}

// environment gives a machine's whole environment: what it needs of the
// host's, what every machine is told about itself, and its own, which wins.
func environment(m *bourse.Machine) []string {
	env := map[string]string{
		"PATH": os.Getenv("PATH"),
		"HOME": os.Getenv("HOME"),

		"FLY_APP_NAME":        string(m.App),
		"FLY_MACHINE_ID":      string(m.ID),
		"FLY_ALLOC_ID":        string(m.ID),
		"FLY_MACHINE_VERSION": string(m.Instance),
		"FLY_REGION":          string(m.Region),
		"FLY_IMAGE_REF":       m.Config.Image,
		"FLY_VM_MEMORY_MB":    strconv.FormatInt(int64(m.Config.Guest.MemoryMB), 10),
		"FLY_PROCESS_GROUP":   m.Config.Metadata["fly_process_group"],
	}
	if m.Boot.Port != 0 {
		env[envPort] = strconv.Itoa(m.Boot.Port)
	}
	maps.Copy(env, m.Config.Env)
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, fmt.Sprintf("%s=%s", k, v))
	}
	slices.Sort(out)
	return out
}
