package broker

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// machineLogs streams a machine's output, a JSON value a line, each sent as it
// comes. A stream that breaks off ends in a line that says why.
func (b *Broker) machineLogs(w http.ResponseWriter, r *request) error {
	want, err := readLogs(r)
	if err != nil {
		return err
	}
	to, err := b.targetOf(r)
	if err != nil {
		return err
	}
	out := &lineWriter{w: w, flush: http.NewResponseController(w).Flush}
	if want.Follow {
		// Whoever follows a silent machine must see that the stream began.
		if _, _, err := b.machineOf(r); err != nil {
			return err
		}
		out.begin()
	}
	err = b.Workers.Logs(r.Context(), to.worker, to.id, want, func(l fabric.LogLine) error {
		return out.write(machinesapi.LogLine{At: l.At, Stream: l.Stream, Text: l.Text})
	})
	switch {
	case r.Context().Err() != nil:
		return nil //nolint:nilerr // the caller has seen enough
	case err == nil:
		out.begin()
		return nil
	case !out.begun:
		return workerError(r.Context(), to.worker.ID, reading, err)
	}
	err = workerError(r.Context(), to.worker.ID, reading, err)
	return out.write(machinesapi.LogLine{At: b.Now().UTC(), Error: &machinesapi.ErrorBody{
		Error: bourse.MessageOf(err), Status: machinesapi.StatusUnknown, Code: bourse.CodeOf(err), RequestID: r.id,
	}})
}

// readLogs reads which lines are wanted. Codes: invalid.
func readLogs(r *request) (fabric.LogsQuery, error) {
	var want fabric.LogsQuery
	var err error
	if want.Follow, err = queryBool(r, "follow"); err != nil {
		return want, err
	}
	if want.Tail, err = queryInt(r, "tail"); err != nil {
		return want, err
	}
	if s := r.URL.Query().Get("since"); s != "" {
		if want.Since, err = time.Parse(time.RFC3339Nano, s); err != nil {
			return want, bourse.Errorf(bourse.CodeInvalid, "invalid since %s: use a time such as 2006-01-02T15:04:05Z", bourse.Quoted(s))
		}
	}
	return want, nil
}

// lineWriter sends JSON values, one a line, at once.
type lineWriter struct {
	w     http.ResponseWriter
	flush func() error
	begun bool
}

// begin sends the header.
func (l *lineWriter) begin() {
	if l.begun {
		return
	}
	l.begun = true
	l.w.Header().Set("Content-Type", machinesapi.TypeLines)
	l.w.WriteHeader(http.StatusOK)
	_ = l.flush() // a writer that cannot flush sends later
}

func (l *lineWriter) write(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.begin()
	if _, err := l.w.Write(append(raw, '\n')); err != nil {
		return err
	}
	return l.flush()
}
