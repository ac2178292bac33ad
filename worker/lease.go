package worker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
)

// defaultLease is a lease's length when the caller does not say.
const defaultLease = 60 * time.Second

func newLease(owner, description string, expires time.Time) *bourse.Lease {
	var nonce [6]byte
	_, _ = rand.Read(nonce[:]) // crypto/rand never fails
	return &bourse.Lease{Nonce: hex.EncodeToString(nonce[:]), Owner: owner, Description: description, ExpiresAt: expires.UTC()}
}

// checkLease refuses who does not hold the lease of a leased machine. Where no
// lease is, any nonce is taken.
func checkLease(m *bourse.Machine, nonce string) error {
	if m.Lease.Expired(time.Now()) || m.Lease.Nonce == nonce {
		return nil
	}
	return bourse.Errorf(bourse.CodeConflict, "machine ID %s lease currently held by %s, expires at %s",
		m.ID, m.Lease.Owner, m.Lease.ExpiresAt.Format(time.RFC3339))
}

// living is changeMachine for what may be done in any state but destroyed.
func (w *Worker) living(ctx context.Context, id bourse.MachineID, change func(*bourse.Machine) (bool, []bourse.Event, error)) (bourse.Machine, error) {
	var m bourse.Machine
	err := w.commit(ctx, id, func(tx *store.Tx) error {
		var err error
		m, err = changeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State == bourse.StateDestroyed {
				return false, nil, errNoMachine
			}
			return change(m)
		})
		return err
	})
	if err != nil { // the transaction may still be at work on m
		return bourse.Machine{}, err
	}
	return m, nil
}

// lease takes a machine's lease, or extends it for who holds it: the nonce
// stays the same.
func (w *Worker) lease(ctx context.Context, id bourse.MachineID, req fabric.LeaseRequest) (bourse.Lease, error) {
	ttl := req.TTL
	if ttl == 0 {
		ttl = defaultLease
	}
	if ttl < 0 || ttl > bourse.MaxLeaseTTL*time.Second {
		return bourse.Lease{}, bourse.Errorf(bourse.CodeInvalid, "invalid lease ttl %s: use up to %d s", ttl, bourse.MaxLeaseTTL)
	}
	m, err := w.living(ctx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if err := checkLease(m, req.Nonce); err != nil {
			return false, nil, err
		}
		expires := time.Now().Add(ttl)
		if m.Lease.Expired(time.Now()) {
			m.Lease = newLease(req.Owner, req.Description, expires)
		} else {
			m.Lease.ExpiresAt = expires.UTC()
		}
		return true, nil, nil
	})
	if err != nil {
		return bourse.Lease{}, err
	}
	return *m.Lease, nil
}

// release ends a machine's lease.
func (w *Worker) release(ctx context.Context, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	m, err := w.living(ctx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
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

// cordon takes a machine's services out of routing, or puts them back.
func (w *Worker) cordon(ctx context.Context, id bourse.MachineID, act fabric.Act, cordoned bool) (fabric.ActReply, error) {
	event := bourse.EventUncordon
	if cordoned {
		event = bourse.EventCordon
	}
	m, err := w.living(ctx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if err := checkLease(m, act.Nonce); err != nil || m.Cordoned == cordoned {
			return false, nil, err
		}
		m.Cordoned = cordoned
		return true, []bourse.Event{{Type: event, State: m.State, Source: bourse.SourceUser}}, nil
	})
	return fabric.ActReply{Previous: m.State, Machine: m}, err
}

// metadata changes a machine's metadata: no new version, no lease needed.
func (w *Worker) metadata(ctx context.Context, id bourse.MachineID, req fabric.MetadataRequest) (bourse.Machine, error) {
	return w.living(ctx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if req.Instance != "" && req.Instance != m.Instance {
			return false, nil, bourse.Errorf(bourse.CodeFailedPrecondition, "machine version is %s, not %s", m.Instance, req.Instance)
		}
		set := map[string]string{}
		for k, v := range m.Config.Metadata {
			if !req.Replace {
				set[k] = v
			}
		}
		for k, v := range req.Set {
			if v == nil || *v == "" {
				delete(set, k)
			} else {
				set[k] = *v
			}
		}
		m.Config.Metadata = set
		return true, nil, m.Config.Normalize()
	})
}
