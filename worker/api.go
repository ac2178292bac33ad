package worker

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
)

// Handler serves the worker's API, package fabric's paths, whatever fabric a
// request came by. Until the worker has recovered every call is unavailable.
func (w *Worker) Handler() http.Handler {
	mux := http.NewServeMux()
	w.handleOrders(mux)
	w.handleMachines(mux)
	w.handleVerbs(mux)
	w.handleApps(mux)
	w.handleRuns(mux)
	w.handleVolumes(mux)
	w.handleImages(mux)
	w.handleStreams(mux)
	w.handleMetrics(mux)
	w.handleReservations(mux)
	mux.HandleFunc(fabric.PathFacts, reply(func(*http.Request) (bourse.Facts, error) { return w.Facts() }))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fabric.Unbounded(rw, r)
		if !w.ready.Load() {
			fabric.WriteFailure(rw, bourse.Errorf(bourse.CodeUnavailable, "worker %s is starting or stopping", w.self.Worker))
			return
		}
		mux.ServeHTTP(rw, r)
	})
}

// reply makes a handler of a function of the request.
func reply[T any](fn func(*http.Request) (T, error)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		v, err := fn(r)
		if err != nil {
			fabric.WriteFailure(rw, err)
			return
		}
		fabric.WriteBody(rw, v)
	}
}

// take makes a handler of a function of the request and its decoded body.
func take[Body, T any](fn func(*http.Request, *Body) (T, error)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		var body Body
		if err := fabric.ReadBody(rw, r, &body); err != nil {
			fabric.WriteFailure(rw, err)
			return
		}
		reply(func(r *http.Request) (T, error) { return fn(r, &body) })(rw, r)
	}
}

func (w *Worker) handleOrders(mux *http.ServeMux) {
	mux.HandleFunc(fabric.PathQuote, take(func(r *http.Request, order *bourse.Order) (bourse.Quote, error) {
		if err := order.Validate(); err != nil {
			return bourse.Quote{}, err
		}
		return w.quote(r.Context(), order)
	}))
	mux.HandleFunc(fabric.PathClaim, take(func(r *http.Request, c *bourse.Claim) (fabric.ClaimReply, error) {
		if err := c.Order.Validate(); err != nil {
			return fabric.ClaimReply{}, err
		}
		fill, refusal, err := w.admit(r.Context(), c)
		return fabric.ClaimReply{Fill: fill, Refusal: refusal}, err
	}))
	mux.HandleFunc(fabric.PathClaimStream, w.handleClaimStream)
	mux.HandleFunc(fabric.PathCancel, reply(func(r *http.Request) (bourse.Cancellation, error) {
		return w.cancelFor(r.Context(), bourse.OrderID(r.PathValue("order")), "a request from "+r.RemoteAddr)
	}))
	mux.HandleFunc(fabric.PathOrder, reply(func(r *http.Request) (bourse.Decision, error) {
		return w.decision(r.Context(), bourse.OrderID(r.PathValue("order")))
	}))
}

// decision gives the record of an order that was filled here.
func (w *Worker) decision(ctx context.Context, id bourse.OrderID) (bourse.Decision, error) {
	if err := w.store.Sync(ctx); err != nil {
		return bourse.Decision{}, err
	}
	var d bourse.Decision
	err := w.store.View(func(tx *store.Tx) error {
		rec, ok, err := tx.Order(id)
		if err == nil && rec.Task != nil {
			d = taskDecision(&rec)
			return nil
		}
		if err == nil && (!ok || rec.Machine == "" && rec.Volume == "" && !rec.Held) {
			err = bourse.Errorf(bourse.CodeNotFound, "order not found")
		}
		d = rec.Decision
		return err
	})
	return d, err
}

func (w *Worker) handleApps(mux *http.ServeMux) {
	mux.HandleFunc(fabric.PathApps, reply(func(r *http.Request) ([]bourse.App, error) {
		return w.apps(bourse.AppName(r.URL.Query().Get("name")))
	}))
	mux.HandleFunc(fabric.PathApp, take(func(r *http.Request, app *bourse.App) (bourse.App, error) {
		if name := bourse.AppName(r.PathValue("app")); app.Name != name {
			return bourse.App{}, bourse.Errorf(bourse.CodeInvalid, "the body's app is %s, the path's %s", bourse.Quoted(string(app.Name)), bourse.Quoted(string(name)))
		}
		if err := app.Name.Validate(); err != nil {
			return bourse.App{}, err
		}
		var now bourse.App
		err := w.store.Update(r.Context(), func(tx *store.Tx) error {
			if err := mergeApp(tx, *app); err != nil {
				return err
			}
			var err error
			now, _, err = tx.App(app.Name)
			return err
		})
		if err != nil { // the transaction may still be at work on now
			return bourse.App{}, err
		}
		return now, nil
	}))
}

// query reads an optional parameter of a query string.
func query[T any](r *http.Request, name string, parse func(string) (T, error)) (T, error) {
	var zero T
	text := r.URL.Query().Get(name)
	if text == "" {
		return zero, nil
	}
	v, err := parse(text)
	if err != nil {
		return zero, bourse.Errorf(bourse.CodeInvalid, "invalid %s %s", name, bourse.Quoted(text))
	}
	return v, nil
}

func queryInt(r *http.Request, name string) (int, error) { return query(r, name, strconv.Atoi) }

func queryTime(r *http.Request, name string) (time.Time, error) {
	return query(r, name, func(s string) (time.Time, error) { return time.Parse(time.RFC3339Nano, s) })
}

func machineID(r *http.Request) bourse.MachineID { return bourse.MachineID(r.PathValue("machine")) }
