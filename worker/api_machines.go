package worker

import (
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
)

func (w *Worker) handleMachines(mux *http.ServeMux) {
	mux.HandleFunc(fabric.PathMachines, reply(func(r *http.Request) ([]bourse.Machine, error) {
		q := r.URL.Query()
		name, deleted := q.Get("name"), q.Get("deleted") == "true"
		appName, app := queryApp(q)
		return w.machines(r.Context(), app, func(m *bourse.Machine) bool {
			return (appName == "" || m.App == appName) && (name == "" || m.Name == name) && (deleted || m.State != bourse.StateDestroyed)
		})
	}))
	mux.HandleFunc(fabric.PathMachine, reply(func(r *http.Request) (bourse.Machine, error) {
		return w.machine(r.Context(), machineID(r))
	}))
	mux.HandleFunc(fabric.PathEvents, reply(func(r *http.Request) ([]bourse.Event, error) {
		limit, err := queryInt(r, "limit")
		if err != nil {
			return nil, err
		}
		if err := w.store.Sync(r.Context()); err != nil {
			return nil, err
		}
		var m bourse.Machine
		err = w.store.View(func(tx *store.Tx) error {
			var err error
			m, err = readMachine(tx, machineID(r), max(0, limit))
			return err
		})
		return m.LastEvents, err
	}))
	mux.HandleFunc(fabric.PathWait, reply(w.handleWait))
	mux.HandleFunc(fabric.PathLogs, w.handleLogs)
}

// waitMost bounds a wait, whatever its caller says.
const waitMost = 5 * time.Minute

func (w *Worker) handleWait(r *http.Request) (fabric.WaitReply, error) {
	limit, err := query(r, "timeout", time.ParseDuration)
	if err != nil {
		return fabric.WaitReply{}, err
	}
	if limit <= 0 || limit > waitMost {
		limit = waitMost
	}
	q := r.URL.Query()
	return w.wait(r.Context(), machineID(r), waitFor{
		states: q["state"], instance: bourse.InstanceID(q.Get("instance")), after: bourse.EventID(q.Get("after")),
	}, limit)
}

// handleLogs streams a machine's output as NDJSON.
func (w *Worker) handleLogs(rw http.ResponseWriter, r *http.Request) {
	since, err := queryTime(r, "since")
	if err != nil {
		fabric.WriteFailure(rw, err)
		return
	}
	tail, err := queryInt(r, "tail")
	if err != nil {
		fabric.WriteFailure(rw, err)
		return
	}
	m, err := w.machine(r.Context(), machineID(r))
	if err != nil {
		fabric.WriteFailure(rw, err)
		return
	}
	d, err := w.driverOf(m.Config.Image)
	if err != nil {
		fabric.WriteFailure(rw, err)
		return
	}
	follow := r.URL.Query().Get("follow") == "true"
	out := newStream(rw, follow)
	if follow {
		out.begin()
		_ = http.NewResponseController(rw).Flush() // the first line may be long in coming
	}
	err = d.Logs(r.Context(), machineID(r), driver.LogQuery{Since: since, Tail: tail, Follow: follow},
		func(l driver.LogLine) error {
			return out.write(fabric.LogLine{At: l.At, Stream: l.Stream, Text: l.Text})
		})
	out.end(err)
}
