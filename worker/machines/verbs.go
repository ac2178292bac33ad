package machines

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// List returns the machines of app for which keep returns true, oldest first. If app is
// nil, it returns the machines of all apps.
func (ms *Machines) List(ctx context.Context, app *bourse.App, keep func(*bourse.Machine) bool) ([]bourse.Machine, error) {
	if err := ms.state.Store.Sync(ctx); err != nil {
		return nil, err
	}
	out := []bourse.Machine{}
	err := ms.state.Store.View(func(tx *store.Tx) error {
		all := tx.Machines()
		if app != nil {
			all = tx.MachinesOf(*app)
		}
		for m, err := range all {
			if err != nil {
				return err
			}
			if !keep(&m) {
				continue
			}
			if m.LastEvents, err = state.ReadEvents(tx, m.ID, state.RecentEvents); err != nil {
				return err
			}
			out = append(out, m)
		}
		return nil
	})
	slices.SortFunc(out, func(a, b bourse.Machine) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return out, err
}

// Logs calls fn for each line of a machine's output that matches the query.
func (ms *Machines) Logs(ctx context.Context, m *bourse.Machine, query driver.LogQuery, fn func(driver.LogLine) error) error {
	d, err := ms.DriverOf(m)
	if err != nil {
		return err
	}
	return d.Logs(ctx, m.ID, query, fn)
}

// Running returns a machine, or an error if the machine's program is not running. Call it before you send a signal to
// the program or run a command in the machine.
func (ms *Machines) Running(ctx context.Context, id bourse.MachineID) (bourse.Machine, error) {
	m, err := ms.state.Machine(ctx, id)
	if err == nil {
		err = stateAllows(&m, bourse.CallExec)
	}
	return m, err
}

// Signal sends a signal to a machine's program.
func (ms *Machines) Signal(ctx context.Context, id bourse.MachineID, act fabric.MachineAction) (fabric.ActReply, error) {
	if act.Signal == "" {
		return fabric.ActReply{}, bourse.Errorf(bourse.CodeInvalid, "signal is required")
	}
	m, err := ms.Running(ctx, id)
	if err != nil {
		return fabric.ActReply{}, err
	}
	d, err := ms.DriverOf(&m)
	if err != nil {
		return fabric.ActReply{}, err
	}
	return fabric.ActReply{Previous: m.State, Machine: m}, d.Signal(ctx, TaskOf(&m), act.Signal)
}

// Timeouts for Exec.
const (
	defaultExecTimeout = time.Minute
	maxExecTimeout     = 10 * time.Minute
)

// Exec runs a command in a machine. A command that exceeds its timeout is killed, and
// the error is CodeTimeout.
func (ms *Machines) Exec(ctx context.Context, id bourse.MachineID, req *fabric.ExecRequest) (fabric.ExecReply, error) {
	limit := time.Duration(req.Timeout)
	if limit == 0 {
		limit = defaultExecTimeout
	}
	if limit < 0 || limit > maxExecTimeout || len(req.Command) == 0 {
		return fabric.ExecReply{}, bourse.Errorf(bourse.CodeInvalid, "invalid exec: specify a command, and a timeout of up to %s", maxExecTimeout)
	}
	m, err := ms.Running(ctx, id)
	if err != nil {
		return fabric.ExecReply{}, err
	}
	d, err := ms.DriverOf(&m)
	if err != nil {
		return fabric.ExecReply{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	res, err := d.Exec(ctx, TaskOf(&m), driver.Exec{Command: req.Command, Stdin: bytes.NewReader(req.Stdin)})
	if ctx.Err() == context.DeadlineExceeded {
		return fabric.ExecReply{}, bourse.Errorf(bourse.CodeTimeout, "the command did not finish within %s and was killed", limit)
	}
	return fabric.ExecReply{Exit: res.Exit, Stdout: res.Stdout, Stderr: res.Stderr}, err
}

// defaultLease is the duration of a lease if the request does not specify one.
const defaultLease = 60 * time.Second

func newLease(owner, description string, expires time.Time) *bourse.Lease {
	var nonce [6]byte
	_, _ = rand.Read(nonce[:]) // crypto/rand never fails
	return &bourse.Lease{Nonce: hex.EncodeToString(nonce[:]), Owner: owner, Description: description, ExpiresAt: expires.UTC()}
}

// checkLease returns CodeConflict if the machine is leased to another caller. If the machine is not leased, it accepts
// any nonce.
func checkLease(m *bourse.Machine, nonce string) error {
	if m.Lease.Expired(time.Now()) || m.Lease.Nonce == nonce {
		return nil
	}
	return bourse.Errorf(bourse.CodeConflict, "machine ID %s lease currently held by %s, expires at %s",
		m.ID, m.Lease.Owner, m.Lease.ExpiresAt.Format(time.RFC3339))
}

// applyCall changes a machine's record, for a call that does not affect the host.
func (ms *Machines) applyCall(ctx context.Context, id bourse.MachineID, call bourse.Call, change func(*bourse.Machine) (bool, []bourse.Event, error)) (bourse.Machine, error) {
	return ms.applyCallTx(ctx, id, call, func(_ *store.Tx, m *bourse.Machine) (bool, []bourse.Event, error) { return change(m) })
}

func (ms *Machines) applyCallTx(
	ctx context.Context, id bourse.MachineID, call bourse.Call, change func(*store.Tx, *bourse.Machine) (bool, []bourse.Event, error),
) (bourse.Machine, error) {
	var m bourse.Machine
	err := ms.state.Commit(ctx, id, func(tx *store.Tx) error {
		var err error
		m, err = state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if err := stateAllows(m, call); err != nil {
				return false, nil, err
			}
			return change(tx, m)
		})
		return err
	})
	if err != nil { // after an error, the transaction may still be writing to m, so do not read it
		return bourse.Machine{}, err
	}
	return m, nil
}

// takeLease gives the caller a new lease on the machine, or extends the caller's own
// lease. The machine must not be leased to another caller.
func takeLease(m *bourse.Machine, nonce, owner, description string, ttl time.Duration) {
	expires := time.Now().Add(ttl)
	late := m.Lease != nil && m.Lease.Nonce == nonce // the caller's lease has expired, but nobody else has taken the lease since
	if m.Lease.Expired(time.Now()) && !late {
		m.Lease = newLease(owner, description, expires)
	} else {
		m.Lease.ExpiresAt = expires.UTC()
	}
}

// Lease gives the caller a new lease on the machine, or extends the caller's lease. An extended lease keeps its nonce.
// An expired lease can still be extended if nobody else has taken a lease since.
func (ms *Machines) Lease(ctx context.Context, id bourse.MachineID, req fabric.LeaseRequest) (bourse.Lease, error) {
	ttl := req.TTL
	if ttl == 0 {
		ttl = defaultLease
	}
	if ttl < 0 || ttl > bourse.MaxLeaseTTL*time.Second {
		return bourse.Lease{}, bourse.Errorf(bourse.CodeInvalid, "invalid lease ttl %s: use up to %d s", ttl, bourse.MaxLeaseTTL)
	}
	m, err := ms.applyCall(ctx, id, bourse.CallLease, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if err := checkLease(m, req.Nonce); err != nil {
			return false, nil, err
		}
		takeLease(m, req.Nonce, req.Owner, req.Description, ttl)
		return true, nil, nil
	})
	if err != nil {
		return bourse.Lease{}, err
	}
	return *m.Lease, nil
}

// Release ends a machine's lease.
func (ms *Machines) Release(ctx context.Context, id bourse.MachineID, act fabric.MachineAction) (fabric.ActReply, error) {
	m, err := ms.applyCall(ctx, id, bourse.CallLease, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if m.Lease.Expired(time.Now()) {
			return false, nil, bourse.Errorf(bourse.CodeNotFound, "machine %s: lease not found", id)
		}
		if err := checkLease(m, act.Nonce); err != nil {
			return false, nil, err
		}
		m.Lease = nil
		return true, nil, nil
	})
	return fabric.ActReply{Previous: m.State, Machine: m}, err
}

// Cordon removes a machine's services from routing, or adds them again.
func (ms *Machines) Cordon(ctx context.Context, id bourse.MachineID, act fabric.MachineAction, cordoned bool) (fabric.ActReply, error) {
	event := bourse.EventUncordon
	if cordoned {
		event = bourse.EventCordon
	}
	m, err := ms.applyCall(ctx, id, bourse.CallCordon, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if err := checkLease(m, act.Nonce); err != nil || m.Cordoned == cordoned {
			return false, nil, err
		}
		m.Cordoned = cordoned
		return true, []bourse.Event{{Type: event, State: m.State, Source: bourse.SourceUser, By: act.By}}, nil
	})
	return fabric.ActReply{Previous: m.State, Machine: m}, err
}

// SetMetadata changes a machine's metadata. It does not create a new version, and does not need a lease.
func (ms *Machines) SetMetadata(ctx context.Context, id bourse.MachineID, req fabric.MetadataRequest) (bourse.Machine, error) {
	return ms.applyCallTx(ctx, id, bourse.CallMetadata, func(tx *store.Tx, m *bourse.Machine) (bool, []bourse.Event, error) {
		if req.Instance != "" && req.Instance != m.Instance {
			return false, nil, bourse.Errorf(bourse.CodeFailedPrecondition, "machine version is %s, not %s", m.Instance, req.Instance)
		}
		if err := tx.RecordVersion(m); err != nil {
			return false, nil, err
		}
		setMetadata(&m.Config, &req)
		err := m.Config.Normalize()
		if err == nil && m.Next != nil { // the next version's config was submitted before this change, so also change it
			setMetadata(&m.Next.Config, &req)
			err = m.Next.Config.Normalize()
		}
		return true, nil, err
	})
}

func setMetadata(c *bourse.Config, req *fabric.MetadataRequest) {
	set := map[string]string{}
	if !req.Replace {
		maps.Copy(set, c.Metadata)
	}
	for k, v := range req.Set {
		if v == nil || *v == "" {
			delete(set, k)
		} else {
			set[k] = *v
		}
	}
	c.Metadata = set
}
