package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/pull"
)

// Orders fills orders on the gateway's worker.
type Orders interface {
	Claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error)
	Cancel(ctx context.Context, id bourse.OrderID) (bourse.Cancellation, error)
}

// Machines reads, stops and destroys the machines of the gateway's worker. Named, Stop and Destroy return a not_found
// error if the machine does not exist.
type Machines interface {
	App(ctx context.Context, name bourse.AppName) (bourse.App, error)
	Named(ctx context.Context, app bourse.App, name string) (bourse.Machine, error)
	Machines(ctx context.Context, app *bourse.App, keep func(*bourse.Machine) bool) ([]bourse.Machine, error)
	Stop(ctx context.Context, id bourse.MachineID) (bourse.Machine, error)
	Destroy(ctx context.Context, id bourse.MachineID) error
}

// Config configures a Gateway. All fields except Keep and Log are required.
type Config struct {
	Region   bourse.Region // the worker's region
	Driver   *pull.Driver
	Orders   Orders
	Machines Machines
	Keep     time.Duration // how long a submitted job is kept after it has ended; default 10 min
	Log      *slog.Logger  // default: nothing is logged
}

// Gateway serves pollers, hosts and clients.
type Gateway struct {
	cfg   Config
	stay  context.Context //nolint:containedctx // canceled by Leave; in addition, each call has its own context
	leave context.CancelFunc
}

// New returns a Gateway.
func New(cfg Config) *Gateway {
	if cfg.Keep <= 0 {
		cfg.Keep = 10 * time.Minute
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	stay, leave := context.WithCancel(context.Background())
	return &Gateway{cfg: cfg, stay: stay, leave: leave}
}

// Leave makes all waiting calls return immediately. Calls that arrive later do not wait.
func (g *Gateway) Leave() { g.leave() }

// Handler returns the handler for paths below /sched.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, h := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /sched/jobs":            g.jobs,
		"POST /sched/claim/{name}":   g.claim,
		"POST /sched/release/{name}": g.release,
		"GET /sched/cancellations":   g.cancellations,
		"POST /sched/register":       g.register,
		"GET /sched/assigned":        g.assigned,
		"POST /sched/started/{name}": g.started,
		"POST /sched/stopped/{name}": g.stopped,
		"POST /sched/submit":         g.submit,
		"GET /sched/status/{name}":   g.status,
		"POST /sched/cancel/{name}":  g.cancel,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				if bourse.CodeOf(err) == bourse.CodeInternal {
					g.cfg.Log.Error("gateway call failed", "path", r.Pattern, "err", err)
				}
				writeFailure(w, err)
			}
		})
	}
	return mux
}

// nameIn returns the job name in a request's path. Errors: not_found if the name is invalid.
func nameIn(r *http.Request) (string, error) {
	name := r.PathValue("name")
	if bourse.ValidateMachineName(name) != nil {
		return "", bourse.Errorf(bourse.CodeNotFound, "job %s not found", bourse.Quoted(name))
	}
	return name, nil
}

// jobName is the reply to a call that changes a job.
type jobName struct {
	Name   string      `json:"name"`
	Ticket pull.Ticket `json:"ticket,omitempty"` // the new ticket, if the caller sent none
}
