package broker

import (
	"bytes"
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"

	"github.com/bourse-dev/bourse/broker/tenant"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/workload"
)

// taskHandler serves the endpoints of tasks.
type taskHandler struct {
	*Config
	gate    *endpoint.Gate
	apps    *lookup.Apps
	secrets *tenant.Secrets
}

func (h *taskHandler) routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("POST "+endpoint.OneApp+"/tasks", endpoint.App, h.gate.Ordering(endpoint.TaskLease, h.runTask)).Reads(machinesapi.RunTask{}).Writes(machinesapi.TaskReply{}),
		endpoint.On("POST /schedule", endpoint.Token, h.gate.Ordering(endpoint.TaskLease, h.schedule)).Reads(machinesapi.Schedule{}).Sends("application/octet-stream").Fails(machinesapi.TaskReply{}),
	}
}

// runTask runs a task. It replies with the task's result, even if the program failed, or with all refusals if no worker
// accepted the task.
func (h *taskHandler) runTask(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.RunTask
	if err := endpoint.DecodeTask(w, r, &in); err != nil {
		return err
	}
	if strings.Contains(r.Header.Get("Accept"), machinesapi.TypeLines) {
		return h.streamTask(w, r, &in)
	}
	fill, err := h.placeTask(w, r, r.App(), &in, nil)
	if err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.FromTask(fill.Task, fill.Repeated))
}

// streamTask is like runTask, but replies with a stream of lines. The first line confirms that the
// task was accepted. The following lines contain the parts of the answer as they arrive, and the
// last line contains the result.
func (h *taskHandler) streamTask(w http.ResponseWriter, r *endpoint.Request, in *machinesapi.RunTask) error {
	out := codec.NewWriter(w)
	fill, err := h.placeTask(w, r, r.App(), in, func(part []byte) {
		var line machinesapi.TaskLine
		switch {
		case len(part) == 0:
			line.Accepted = bourse.OrderID(w.Header().Get(machinesapi.HeaderOrderID))
		case utf8.Valid(part):
			line.Output = string(part)
		default:
			line.OutputBase64 = part
		}
		_ = out.Write(line) // fails only if the caller has disconnected, which also cancels the request's context
	})
	switch {
	case err == nil:
		return out.Write(machinesapi.TaskLine{Result: new(machinesapi.FromTask(fill.Task, fill.Repeated))})
	case !out.Begun():
		return err
	}
	return out.Write(machinesapi.TaskLine{Error: &machinesapi.ErrorBody{
		Error: bourse.MessageOf(err), Status: machinesapi.StatusUnknown, Code: bourse.CodeOf(err), RequestID: r.ID,
		OrderID: bourse.OrderID(w.Header().Get(machinesapi.HeaderOrderID)),
	}})
}

// schedule is like runTask, but the body of its reply contains only the program's answer. If the program fails, the
// status is 502 (504 if the program exceeded its time limit), and the body is the same as runTask's.
func (h *taskHandler) schedule(w http.ResponseWriter, r *endpoint.Request) error {
	var short machinesapi.Schedule
	if err := endpoint.DecodeTask(w, r, &short); err != nil {
		return err
	}
	if _, err := h.gate.Usable(r, bourse.DefaultAppName); err != nil {
		return err
	}
	in := machinesapi.RunTask{Task: short.Task, Payload: short.Payload, Region: short.Requirements.Region, Requirements: short.Requirements.All}
	fill, err := h.placeTask(w, r, bourse.DefaultAppName, &in, nil)
	if err != nil {
		return err
	}
	result := fill.Task
	switch {
	case result.OK():
		w.Header().Set("Content-Type", cmp.Or(result.Type, "application/octet-stream"))
		w.Header().Set("Content-Length", strconv.Itoa(len(result.Answer)))
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(result.Answer)
		return nil
	case result.End == bourse.TaskTimeout:
		return endpoint.WriteJSON(w, http.StatusGatewayTimeout, machinesapi.FromTask(result, fill.Repeated))
	}
	return endpoint.WriteJSON(w, http.StatusBadGateway, machinesapi.FromTask(result, fill.Repeated))
}

// placeTask places an order for a task. If output is not nil, it is called with each part of the
// answer.
func (h *taskHandler) placeTask(w http.ResponseWriter, r *endpoint.Request, name bourse.AppName, in *machinesapi.RunTask, output func([]byte)) (*bourse.Fill, error) {
	order, err := h.taskOrder(r, name, in)
	if err != nil {
		return nil, err
	}
	order.Task.Output = output
	w.Header().Set(machinesapi.HeaderOrderID, string(order.ID))
	fill, decision, err := h.Exchange.Place(r.Context(), order)
	w.Header().Set(machinesapi.HeaderServerTiming, endpoint.ServerTiming(decision.Times))
	switch {
	case err != nil:
		return nil, placeError(&order, &decision, err)
	case fill.Task == nil:
		return nil, &endpoint.Reply{Order: order.ID, Err: bourse.Errorf(bourse.CodeInternal, "order %s was filled without a result", order.ID)}
	case len(fill.Task.Sum) > 0 && !bytes.Equal(fill.Task.Sum, order.TaskSum()): // the stored result belongs to a different task
		return nil, &endpoint.Reply{Order: order.ID, Err: bourse.Errorf(bourse.CodeConflict, "order %s was already used for another payload or program", order.ID)}
	}
	return &fill, nil
}

// taskOrder converts a request to an order. Errors: invalid; not_found (the app); unavailable if no
// worker is known.
func (h *taskHandler) taskOrder(r *endpoint.Request, name bourse.AppName, in *machinesapi.RunTask) (bourse.Order, error) {
	chosen, err := chosenID(r)
	if err != nil {
		return bourse.Order{}, err
	}
	task, err := in.Order()
	if err != nil {
		return bourse.Order{}, err
	}
	config, err := in.Config()
	if err != nil {
		return bourse.Order{}, err
	}
	if config.Image != "" { // only a cold task has its own config, which must be valid
		if _, err := workload.Review(&config); err != nil {
			return bourse.Order{}, err
		}
	}
	regions, err := choices(h.Directory, in.Region)
	if err != nil {
		return bourse.Order{}, err
	}
	order := bourse.Order{App: bourse.App{Name: name}, Regions: regions, Config: config, Task: task}
	chosen.name(&order)
	if err := order.Validate(); err != nil {
		return bourse.Order{}, err
	}
	if order.App, err = h.apps.FindCached(r.Context(), name); err != nil {
		return bourse.Order{}, err
	}
	chosen.name(&order)
	if !order.Warm() { // a cold task gets its own machine, which needs the app's secrets
		order.Secrets, order.AppKeys, err = h.secrets.Require(r.Context(), order.App.ID, 0)
	}
	return order, err
}
