package broker

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// defaultLease is the default TTL of a lease, in seconds.
const defaultLease = 60

// errNoLease returns the error for a missing lease. Clients look for its text.
func errNoLease() error { return bourse.Errorf(bourse.CodeNotFound, "lease not found") }

func (h *machineHandler) getLease(w http.ResponseWriter, r *endpoint.Request) error {
	_, m, err := h.machineOf(r)
	if err != nil {
		return err
	}
	if m.State == bourse.StateDestroyed || m.Lease.Expired(h.Now()) {
		return errNoLease()
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.FromLease(m.Lease, m.Instance))
}

// acquireLease acquires the machine's lease, or extends it if the request contains the lease's
// current nonce.
func (h *machineHandler) acquireLease(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.LeaseRequest
	if err := endpoint.Decode(w, r, true, &in); err != nil {
		return err
	}
	ttl, err := leaseTTL(r.URL.Query().Get("ttl"), in.TTL)
	if err != nil {
		return err
	}
	to, m, err := h.machineOf(r) // read the machine, because the reply contains its version
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	lease, err := fabric.MachineLease.Call(ctx, h.Workers, to.worker, fabric.LeaseRequest{
		Machine: to.id, Nonce: r.Header.Get(machinesapi.HeaderNonce), TTL: ttl, Owner: r.Who.Name, Description: in.Description,
	})
	if err != nil {
		return endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Changing, err)
	}
	// m was read before the lease was acquired. Add the lease, and advance UpdatedAt so that the
	// cache prefers this version.
	m.Lease, m.UpdatedAt = &lease, m.UpdatedAt.Add(1)
	h.machines.RememberReply(&m)
	return endpoint.WriteJSON(w, http.StatusCreated, machinesapi.FromLease(&lease, m.Instance))
}

// leaseTTL returns the requested TTL. Both parameters are in seconds. A TTL in the query takes
// precedence over one in the body.
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

func (h *machineHandler) releaseLease(w http.ResponseWriter, r *endpoint.Request) error {
	_, err := h.act(r, &fabric.MachineRelease, fabric.MachineAction{})
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return errNoLease() // a missing machine has no lease either
	}
	if err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.Released{Status: "success", Data: machinesapi.OK{OK: true}})
}
