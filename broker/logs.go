package broker

import (
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/machinesapi"
)

// machineLogs streams a machine's output, one JSON value per line, without buffering. If the stream
// fails, its last line contains the error.
func (h *machineHandler) machineLogs(w http.ResponseWriter, r *endpoint.Request) error {
	want, err := readLogs(r)
	if err != nil {
		return err
	}
	to, err := h.targetOf(r)
	if err != nil {
		return err
	}
	want.Machine = to.id
	out := codec.NewWriter(w)
	if want.Follow {
		// Start the stream right away, even if the machine has no output yet. Once the stream has
		// started, the status can no longer report a missing machine, so check beforehand that
		// the machine exists.
		if _, _, err := h.machineOf(r); err != nil {
			return err
		}
		out.Begin()
	}
	err = fabric.MachineLogs.Call(r.Context(), h.Workers, to.worker, want, func(l fabric.LogLine) error {
		return out.Write(machinesapi.LogLine{At: l.At, Stream: l.Stream, Text: l.Text, Position: l.Position})
	})
	switch {
	case r.Context().Err() != nil:
		return nil //nolint:nilerr // the caller has disconnected
	case err == nil:
		out.Begin()
		return nil
	case !out.Begun():
		return endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Reading, err)
	}
	err = endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Reading, err)
	return out.Write(machinesapi.LogLine{At: h.Now().UTC(), Error: &machinesapi.ErrorBody{
		Error: bourse.MessageOf(err), Status: machinesapi.StatusUnknown, Code: bourse.CodeOf(err), RequestID: r.ID,
	}})
}

// readLogs decodes the query parameters of a request for logs. Errors: invalid.
func readLogs(r *endpoint.Request) (fabric.LogsQuery, error) {
	want := fabric.LogsQuery{After: r.URL.Query().Get("after")}
	var err error
	if want.Follow, err = endpoint.QueryBool(r, "follow"); err != nil {
		return want, err
	}
	if want.Tail, err = endpoint.QueryInt(r, "tail"); err != nil {
		return want, err
	}
	if s := r.URL.Query().Get("since"); s != "" {
		if want.Since, err = time.Parse(time.RFC3339Nano, s); err != nil {
			return want, bourse.Errorf(bourse.CodeInvalid, "invalid since %s: use a time such as 2006-01-02T15:04:05Z", bourse.Quoted(s))
		}
	}
	return want, nil
}
