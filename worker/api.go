package worker

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/internal/metrics"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/volume"
)

// Handler returns the handler of the worker's API, which implements the verbs of package fabric. Until the worker has
// recovered its state, every call fails with CodeUnavailable.
func (w *Worker) Handler() http.Handler {
	mux := http.NewServeMux()
	handleOrders(mux, w)
	handleMachines(mux, w)
	handleVolumes(mux, w)
	handleImages(mux, w)
	handleRuns(mux, w)
	fabric.AppList.Handle(mux, func(_ context.Context, name bourse.AppName) ([]bourse.App, error) { return w.state.Apps(name) })
	fabric.WorkerFacts.Handle(mux, func(context.Context, struct{}) (bourse.Facts, error) { return w.Facts() })
	fabric.WorkerCordon.Handle(mux, w.cordon)
	mux.Handle(fabric.WorkerMetrics.Method+" "+fabric.WorkerMetrics.Path(), metrics.Handler(append(slices.Clone(w.cfg.Metrics), w.Metrics())...))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fabric.PrepareUnboundedReply(rw, r)
		if !w.ready.Load() {
			fabric.WriteFailure(rw, bourse.Errorf(bourse.CodeUnavailable, "worker %s is starting or stopping", w.self.Worker))
			return
		}
		mux.ServeHTTP(rw, r)
	})
}

func handleOrders(mux *http.ServeMux, w *Worker) {
	fabric.OrderQuote.Handle(mux, func(ctx context.Context, order bourse.Order) (bourse.Quote, error) {
		if err := order.Validate(); err != nil {
			return bourse.Quote{}, err
		}
		return w.quote(ctx, &order)
	})
	fabric.OrderClaim.Handle(mux, func(ctx context.Context, c bourse.Claim) (fabric.ClaimReply, error) {
		if err := c.Order.Validate(); err != nil {
			return fabric.ClaimReply{}, err
		}
		return claimed(w.admit(ctx, &c))
	})
	fabric.OrderStream.Handle(mux, w.claimStream)
	fabric.OrderCancel.HandleFrom(mux, func(r *http.Request, id bourse.OrderID) (bourse.Cancellation, error) {
		return w.cancelFor(r.Context(), id, "a request from "+r.RemoteAddr)
	})
	fabric.OrderShow.Handle(mux, w.decision)
	fabric.OrderPull.Handle(mux, w.machines.Pulling)
	fabric.ReservationList.Handle(mux, func(ctx context.Context, _ struct{}) ([]bourse.Hold, error) { return w.holds.All(ctx) })
	fabric.ReservationShow.Handle(mux, w.holds.Of)
	fabric.ReservationExtend.Handle(mux, func(ctx context.Context, e fabric.ExtendHolds) ([]bourse.Hold, error) {
		return w.holds.Extend(ctx, e.Reservation, time.Duration(e.TTL))
	})
	fabric.ReservationRelease.Handle(mux, func(ctx context.Context, key bourse.ReservationKey) (struct{}, error) {
		return struct{}{}, w.releaseHolds(ctx, key)
	})
}

func claimed(fill *bourse.Fill, refusal *bourse.Refusal, err error) (fabric.ClaimReply, error) {
	return fabric.ClaimReply{Fill: fill, Refusal: refusal}, err
}

func handleMachines(mux *http.ServeMux, w *Worker) {
	fabric.MachineList.Handle(mux, func(ctx context.Context, q fabric.MachinesQuery) ([]bourse.Machine, error) {
		return w.machines.List(ctx, queriedApp(q.App, q.AppID), func(m *bourse.Machine) bool {
			return (q.App == "" || m.App == q.App) && (q.Name == "" || m.Name == q.Name) && (q.Deleted || m.State != bourse.StateDestroyed)
		})
	})
	fabric.MachineShow.Handle(mux, w.state.Machine)
	fabric.MachineEvents.Handle(mux, w.machineEvents)
	fabric.MachineWait.Handle(mux, w.waitQuery)
	fabric.MachineUsage.Handle(mux, func(ctx context.Context, id bourse.MachineID) (fabric.Usage, error) {
		u, err := w.machines.Usage(ctx, id)
		u.Tasks = w.tasks.Counts(id)
		return u, err
	})
	fabric.MachineProcesses.Handle(mux, w.processes)
	fabric.MachineLogs.Handle(mux, w.logs)
	for verb, do := range map[*fabric.Verb[fabric.MachineAction, fabric.ActReply]]machineCall{
		&fabric.MachineStart:   w.machines.Start,
		&fabric.MachineStop:    w.machines.Stop,
		&fabric.MachineSuspend: w.machines.Suspend,
		&fabric.MachineRestart: w.machines.Restart,
		&fabric.MachineDestroy: w.machines.Destroy,
		&fabric.MachineSignal:  w.machines.Signal,
		&fabric.MachineRelease: w.machines.Release,
		&fabric.MachineCordon: func(ctx context.Context, id bourse.MachineID, act fabric.MachineAction) (fabric.ActReply, error) {
			return w.machines.Cordon(ctx, id, act, true)
		},
		&fabric.MachineUncordon: func(ctx context.Context, id bourse.MachineID, act fabric.MachineAction) (fabric.ActReply, error) {
			return w.machines.Cordon(ctx, id, act, false)
		},
	} {
		verb.Handle(mux, do.checked)
	}
	fabric.MachineExec.Handle(mux, func(ctx context.Context, e fabric.ExecRequest) (fabric.ExecReply, error) {
		if _, err := w.machines.Running(ctx, e.Machine); err != nil {
			return fabric.ExecReply{}, err
		}
		defer w.uses.Begin(e.Machine)()
		return w.machines.Exec(ctx, e.Machine, &e)
	})
	fabric.MachineVersions.Handle(mux, w.state.Versions)
	fabric.MachineUpdate.Handle(mux, w.machines.Update)
	fabric.MachineLease.Handle(mux, func(ctx context.Context, l fabric.LeaseRequest) (bourse.Lease, error) {
		return w.machines.Lease(ctx, l.Machine, l)
	})
	fabric.MachineMetadata.Handle(mux, func(ctx context.Context, m fabric.MetadataRequest) (bourse.Machine, error) {
		return w.machines.SetMetadata(ctx, m.Machine, m)
	})
	fabric.MachineAttach.Handle(mux, w.handleAttach)
	fabric.MachineTunnel.Handle(mux, w.handleTunnel)
	fabric.MachineUse.Handle(mux, w.reach.Use)
}

// machineCall is an operation on one machine.
type machineCall func(context.Context, bourse.MachineID, fabric.MachineAction) (fabric.ActReply, error)

// checked validates the request and then calls do.
func (do machineCall) checked(ctx context.Context, act fabric.MachineAction) (fabric.ActReply, error) {
	if err := act.Signal.Validate(); act.Signal != "" && err != nil {
		return fabric.ActReply{}, err
	}
	if act.Timeout < 0 || time.Duration(act.Timeout) > bourse.MaxStopTimeout {
		return fabric.ActReply{}, bourse.Errorf(bourse.CodeInvalid, "invalid timeout %s: use 0 to %s", time.Duration(act.Timeout), bourse.MaxStopTimeout)
	}
	return do(ctx, act.Machine, act)
}

func handleVolumes(mux *http.ServeMux, w *Worker) {
	fabric.VolumeList.Handle(mux, func(ctx context.Context, q fabric.VolumesQuery) ([]bourse.Volume, error) {
		return w.volumes.List(ctx, queriedApp(q.App, q.AppID), func(v *bourse.Volume) bool {
			return (q.App == "" || v.App == q.App) && (q.Deleted || v.State != bourse.VolumeDestroyed)
		})
	})
	fabric.VolumeShow.Handle(mux, w.volumes.Get)
	fabric.VolumeUpdate.Handle(mux, func(ctx context.Context, c fabric.VolumeChange) (bourse.Volume, error) {
		return w.volumes.Change(ctx, c.Volume, c)
	})
	fabric.VolumeExtend.Handle(mux, func(ctx context.Context, e fabric.ExtendRequest) (bourse.Volume, error) {
		return w.volumes.Extend(ctx, e.Volume, e.SizeGB)
	})
	fabric.VolumeDestroy.Handle(mux, w.volumes.Destroy)
	fabric.VolumeSnapshot.Handle(mux, w.volumes.Snapshot)
	fabric.VolumeGrant.Handle(mux, func(ctx context.Context, g fabric.GrantRequest) (string, error) {
		return w.volumes.Grant(ctx, g.ID, &g, time.Now())
	})
	handleExports(mux, w)
}

func handleRuns(mux *http.ServeMux, w *Worker) {
	fabric.RunList.Handle(mux, func(_ context.Context, q fabric.RunsQuery) ([]fabric.Run, error) { return w.listRuns(q.Ended) })
	fabric.RunRetry.Handle(mux, w.onRun(w.engine.Retry))
	fabric.RunSkip.Handle(mux, w.onRun(w.engine.Skip))
	fabric.RunCancel.Handle(mux, w.onRun(func(ctx context.Context, run string) error {
		return w.engine.Cancel(ctx, run, "canceled by an operator")
	}))
}

// queriedApp returns the app that a query is limited to, or nil unless the query contains both a name and an id. A
// query without a name covers all apps. A query with a name but no id covers every app that has ever had the name.
func queriedApp(name bourse.AppName, id string) *bourse.App {
	if name == "" || id == "" {
		return nil
	}
	return &bourse.App{Name: name, ID: id}
}

// handleExports serves volumes and snapshots to other workers that have a grant.
func handleExports(mux *http.ServeMux, w *Worker) {
	fabric.VolumeExport.Handle(mux, func(rw http.ResponseWriter, r *http.Request, e fabric.Export) {
		body := &exportBody{rw: rw}
		err := w.volumes.Granted(e.ID, e.Grant, r.TLS)
		if err == nil {
			err = w.volumes.Export(r.Context(), e.ID, volume.Position{Moment: e.Moment, Offset: e.Offset}, body)
		}
		switch {
		case err == nil:
		case !body.begun:
			fabric.WriteFailure(rw, err)
		default:
			panic(http.ErrAbortHandler) // abort the connection, so that the caller notices that the stream is incomplete
		}
	})
}

// exportBody sends the response's header only when the first byte of the body is written, so that an earlier error can
// still be sent as an error response.
type exportBody struct {
	rw    http.ResponseWriter
	begun bool
}

// Write implements io.Writer.
func (b *exportBody) Write(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.rw.Header().Set("Content-Type", "application/octet-stream")
	}
	return b.rw.Write(p)
}

// listRuns returns the runs in progress. If ended is set, it also returns recently
// finished runs.
func (w *Worker) listRuns(ended bool) ([]fabric.Run, error) {
	runs := []fabric.Run{}
	err := w.store.View(func(tx *store.Tx) error {
		for r, err := range tx.Runs() {
			if err != nil {
				return err
			}
			if ended || !r.Status.Ended() {
				runs = append(runs, showRun(r))
			}
		}
		return nil
	})
	return runs, err
}

func showRun(r fsm.Record) fabric.Run {
	return fabric.Run{
		ID: r.ID, Definition: r.Definition, Resource: r.Resource, Status: string(r.Status), Step: r.Step, Attempt: r.Attempt,
		NotBefore: r.NotBefore, Error: r.Error, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
}

// onRun returns a handler that performs an engine operation (do) on one run, and replies with the run's record.
func (w *Worker) onRun(do func(context.Context, string) error) func(context.Context, string) (fabric.Run, error) {
	return func(ctx context.Context, id string) (fabric.Run, error) {
		if err := do(ctx, id); err != nil {
			return fabric.Run{}, err
		}
		rec, ok, err := w.store.Journal().Run(id)
		if err == nil && !ok {
			err = bourse.Errorf(bourse.CodeNotFound, "run not found")
		}
		return showRun(rec), err
	}
}
