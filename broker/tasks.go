package broker

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// runTask has work done and answers with its end, whatever the program said;
// or with everybody's refusal.
func (b *Broker) runTask(w http.ResponseWriter, r *request) error {
	var in machinesapi.RunTask
	if err := decode(w, r, false, &in); err != nil {
		return err
	}
	if strings.Contains(r.Header.Get("Accept"), machinesapi.TypeLines) {
		return b.streamTask(w, r, &in)
	}
	fill, err := b.placeTask(w, r, r.app(), &in, nil)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, machinesapi.FromTask(fill.Task, fill.Again))
}

// streamTask is runTask a line at a time: that it was accepted, the answer's
// parts as they come, the result.
func (b *Broker) streamTask(w http.ResponseWriter, r *request, in *machinesapi.RunTask) error {
	out := &lineWriter{w: w, flush: http.NewResponseController(w).Flush}
	fill, err := b.placeTask(w, r, r.app(), in, func(part []byte) {
		var line machinesapi.TaskLine
		switch {
		case len(part) == 0:
			line.Accepted = bourse.OrderID(w.Header().Get(machinesapi.HeaderOrderID))
		case utf8.Valid(part):
			line.Output = string(part)
		default:
			line.OutputBase64 = part
		}
		_ = out.write(line) // who has left is seen by the request's end
	})
	switch {
	case err == nil:
		return out.write(machinesapi.TaskLine{Result: new(machinesapi.FromTask(fill.Task, fill.Again))})
	case !out.begun:
		return err
	}
	return out.write(machinesapi.TaskLine{Error: &machinesapi.ErrorBody{
		Error: bourse.MessageOf(err), Status: machinesapi.StatusUnknown, Code: bourse.CodeOf(err), RequestID: r.id,
		OrderID: bourse.OrderID(w.Header().Get(machinesapi.HeaderOrderID)),
	}})
}

// schedule is runTask in short: the reply's body is what the program answered.
// When it did not, the status is 502, or 504 when its time was over, and the
// body is that of runTask.
func (b *Broker) schedule(w http.ResponseWriter, r *request) error {
	var short machinesapi.Schedule
	if err := decode(w, r, false, &short); err != nil {
		return err
	}
	if _, err := b.usable(r, DefaultApp); err != nil {
		return err
	}
	in := machinesapi.RunTask{Task: short.Task, Payload: short.Payload, Region: short.Requirements.Region, Requirements: short.Requirements.All}
	fill, err := b.placeTask(w, r, DefaultApp, &in, nil)
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
		return writeJSON(w, http.StatusGatewayTimeout, machinesapi.FromTask(result, fill.Again))
	}
	return writeJSON(w, http.StatusBadGateway, machinesapi.FromTask(result, fill.Again))
}

// placeTask places an order for work. output, when it is not nil, is told of
// the answer's parts.
func (b *Broker) placeTask(w http.ResponseWriter, r *request, name bourse.AppName, in *machinesapi.RunTask, output func([]byte)) (*bourse.Fill, error) {
	order, err := b.taskOrder(r, name, in)
	if err != nil {
		return nil, err
	}
	order.Task.Output = output
	w.Header().Set(machinesapi.HeaderOrderID, string(order.ID))
	fill, decision, err := b.Exchange.Place(r.Context(), order)
	w.Header().Set(machinesapi.HeaderServerTiming, serverTiming(decision.Times))
	switch {
	case err != nil:
		return nil, placeError(&order, &decision, err)
	case fill.Task == nil:
		return nil, &reply{order: order.ID, err: bourse.Errorf(bourse.CodeInternal, "order %s was filled without a result", order.ID)}
	}
	return &fill, nil
}

// taskOrder makes an order of a request. Codes: invalid, not_found (the app),
// unavailable (nobody is there to take it).
func (b *Broker) taskOrder(r *request, name bourse.AppName, in *machinesapi.RunTask) (bourse.Order, error) {
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
	known := b.Directory.Regions()
	if len(known) == 0 {
		return bourse.Order{}, bourse.Errorf(bourse.CodeUnavailable, "no worker has been heard of")
	}
	regions, err := bourse.ParseRegions(in.Region, known)
	if err != nil {
		return bourse.Order{}, err
	}
	order := bourse.Order{App: bourse.App{Name: name}, Regions: regions, Config: config, Task: task}
	chosen.name(&order)
	if err := order.Validate(); err != nil {
		return bourse.Order{}, err
	}
	if order.App, err = b.apps.recall(r.Context(), name); err != nil {
		return bourse.Order{}, err
	}
	chosen.name(&order)
	return order, nil
}
