package broker

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// defaultLease is how long a lease holds when the caller does not say.
const defaultLease = 60

// errNoLease has the text that clients look for.
func errNoLease() error { return bourse.Errorf(bourse.CodeNotFound, "lease not found") }

func (b *Broker) getLease(w http.ResponseWriter, r *request) error {
	_, m, err := b.machineOf(r)
	if err != nil {
		return err
	}
	if m.State == bourse.StateDestroyed || m.Lease.Expired(b.Now()) {
		return errNoLease()
	}
	return writeJSON(w, http.StatusOK, machinesapi.FromLease(m.Lease, m.Instance))
}

// acquireLease takes the machine's lease, or extends it when the request has
// the current nonce.
func (b *Broker) acquireLease(w http.ResponseWriter, r *request) error {
	var in machinesapi.LeaseRequest
	if err := decode(w, r, true, &in); err != nil {
		return err
	}
	ttl, err := leaseTTL(r.URL.Query().Get("ttl"), in.TTL)
	if err != nil {
		return err
	}
	to, m, err := b.machineOf(r) // the reply names the machine's version
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), b.Patience)
	defer cancel()
	lease, err := b.Workers.Lease(ctx, to.worker, to.id, fabric.LeaseRequest{
		Nonce: r.Header.Get(machinesapi.HeaderNonce), TTL: ttl, Owner: r.who.Name, Description: in.Description,
	})
	if err != nil {
		return workerError(r.Context(), to.worker.ID, changing, err)
	}
	// The lease came after what was read above, and is all that is known of
	// the version that has it.
	m.Lease, m.UpdatedAt = &lease, m.UpdatedAt.Add(1)
	b.fresh.note(&m)
	return writeJSON(w, http.StatusCreated, machinesapi.FromLease(&lease, m.Instance))
}

// leaseTTL reads how long a lease is to hold: of the query, else of the body.
func leaseTTL(query string, body int64) (time.Duration, error) {
	seconds := body
	if query != "" {
		n, err := strconv.ParseInt(query, 10, 64)
		if err != nil {
			return 0, bourse.Errorf(bourse.CodeInvalid, "invalid ttl %s: use seconds", bourse.Quoted(query))
		}
		seconds = n
	}
	seconds = cmp.Or(seconds, defaultLease)
	if seconds < 1 || seconds > bourse.MaxLeaseTTL {
		return 0, bourse.Errorf(bourse.CodeInvalid, "invalid ttl %d: use 1 to %d seconds", seconds, bourse.MaxLeaseTTL)
	}
	return time.Duration(seconds) * time.Second, nil
}

func (b *Broker) releaseLease(w http.ResponseWriter, r *request) error {
	_, err := b.act(r, b.Workers.Release, fabric.Act{})
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return errNoLease() // also when the machine itself is gone: its lease went with it
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, machinesapi.Released{Status: "success", Data: machinesapi.OK{OK: true}})
}
