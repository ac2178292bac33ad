package gateway

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/pull"
)

// submission is the body of a submit request.
type submission struct {
	Name    string            `json:"name"` // the job's name; default: a random name
	Command bourse.Command    `json:"command"`
	Env     map[string]string `json:"env"`
	CPU     int64             `json:"cpu"`     // number of cores; default 1
	Mem     bourse.MiB        `json:"mem"`     // MiB; default 256
	Disk    bourse.MiB        `json:"disk"`    // MiB; default none
	Timeout bourse.Duration   `json:"timeout"` // maximum time until a poller claims the job; default 10s, at most 5m
}

// Metadata of submitted jobs' machines.
const (
	submittedKey   = "bourse_sched"
	submittedValue = "submitted"
	ticketKey      = "bourse_sched_ticket" // hash of the client's ticket
)

// order returns the order for a submission.
func (s *submission) order(app bourse.App, region bourse.Region, ticket pull.Ticket) (*bourse.Order, error) {
	o := &bourse.Order{
		ID: bourse.NewOrderID().In(app.ID), App: app, Name: s.Name, Regions: []bourse.Choice{{region}},
		Config: bourse.Config{
			Image: bourse.ImagePull, Init: bourse.Init{Exec: s.Command}, Env: s.Env,
			Guest:    &bourse.Guest{CPUs: cmp.Or(s.CPU, 1), MemoryMB: cmp.Or(s.Mem, 256)},
			Restart:  &bourse.Restart{Policy: bourse.RestartNo},
			Metadata: map[string]string{submittedKey: submittedValue, ticketKey: ticket.String()},
		},
		Options: bourse.Options{Timeout: s.Timeout},
	}
	if s.Disk < 0 || s.Disk > bourse.MaxVolumeGB<<10 {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid disk %d: use 0 to %d MiB", s.Disk, int64(bourse.MaxVolumeGB)<<10)
	}
	if s.Disk > 0 {
		o.Config.Rootfs = &bourse.Rootfs{SizeGB: (int64(s.Disk) + 1<<10 - 1) >> 10}
	}
	if err := o.Config.Normalize(); err != nil {
		return nil, err
	}
	return o, o.Validate()
}

// submissionReply is the reply to a submission whose job was claimed.
type submissionReply struct {
	Name    string           `json:"name"`
	Machine bourse.MachineID `json:"machine"`
	Order   bourse.OrderID   `json:"order"`
	By      string           `json:"by"`               // name of the poller that claimed the job
	Host    string           `json:"host,omitempty"`   // name of the poller's host, if the host is registered
	Ticket  pull.Ticket      `json:"ticket,omitempty"` // the new ticket, if the client sent none
}

// answerTimeout is how long the gateway waits for the worker's answer after a submission's deadline.
const answerTimeout = 5 * time.Second

// submit submits a job, and replies once the job is claimed or refused. If the client disconnects before that, the
// job is canceled.
func (g *Gateway) submit(w http.ResponseWriter, r *http.Request) error {
	var in submission
	if err := readBody(w, r, &in); err != nil {
		return err
	}
	app, err := g.cfg.Machines.App(r.Context(), bourse.DefaultAppName)
	if err != nil {
		return err
	}
	ticket, made, err := ticketOf(r)
	if err != nil {
		return err
	}
	order, err := in.order(app, g.cfg.Region, ticket)
	if err != nil {
		return err
	}
	if err := g.destroyEnded(r.Context(), order); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), order.Deadline()+answerTimeout)
	defer cancel()
	fill, refusal, err := g.cfg.Orders.Claim(ctx, &bourse.Claim{Order: *order, Decision: bourse.Decision{
		Order: order.ID, App: order.App.Name, AppID: order.App.ID, Regions: order.Regions, At: time.Now().UTC(),
	}})
	if err != nil { // the client does not receive the result
		g.cancelUndelivered(order.ID)
		return err
	}
	if refusal != nil {
		return errRefused(refusal)
	}
	m := &fill.Machine
	out := submissionReply{Name: m.Name, Machine: m.ID, Order: order.ID, Ticket: made}
	if held, ok := g.cfg.Driver.Held(m.ID); ok {
		out.By, out.Host = held.By, held.Host
	}
	writeBody(w, &out)
	return nil
}

// cancelUndelivered cancels an order whose result the client did not receive.
func (g *Gateway) cancelUndelivered(id bourse.OrderID) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if _, err := g.cfg.Orders.Cancel(ctx, id); err != nil {
		g.cfg.Log.Warn("cancel submitted order failed", "order", id, "err", err)
	}
}

// destroyEnded destroys an earlier job that has the same name as the order, if that job has ended.
func (g *Gateway) destroyEnded(ctx context.Context, o *bourse.Order) error {
	if o.Name == "" {
		return nil
	}
	m, err := g.cfg.Machines.Named(ctx, o.App, o.Name)
	if err == nil && submitted(&m) && hasEnded(&m) {
		err = g.cfg.Machines.Destroy(ctx, m.ID)
	}
	if code := bourse.CodeOf(err); code == bourse.CodeNotFound || code == bourse.CodeFailedPrecondition {
		return nil // another call was faster; if this matters, the claim returns an error
	}
	return err
}

func submitted(m *bourse.Machine) bool {
	return m.Config.ImageKind() == bourse.PollerImage && m.Config.Metadata[submittedKey] == submittedValue
}

// hasEnded reports whether a job has ended and will not run again.
func hasEnded(m *bourse.Machine) bool {
	return m.State == bourse.StateStopped || m.State == bourse.StateFailed
}

// errRefused returns the error for a refused submission.
func errRefused(r *bourse.Refusal) error {
	code := bourse.CodeInsufficient
	switch r.Reason {
	case bourse.RefusedName:
		code = bourse.CodeAlreadyExists
	case bourse.RefusedCanceled:
		return bourse.Errorf(bourse.CodeConflict, "the job was canceled before it was claimed")
	case bourse.RefusedUnavailable:
		code = bourse.CodeUnavailable
	default:
	}
	return bourse.Errorf(code, "%s", r.Detail)
}
