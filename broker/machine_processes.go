package broker

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/fabric"
)

// processOrders contains the JSON fields that processes can be sorted by, with their comparison
// functions.
var processOrders = map[string]func(a, b bourse.Process) int{
	"":          func(_, _ bourse.Process) int { return 0 }, // keeps the worker's order
	"pid":       func(a, b bourse.Process) int { return cmp.Compare(a.PID, b.PID) },
	"stime":     func(a, b bourse.Process) int { return cmp.Compare(a.STime, b.STime) },
	"rtime":     func(a, b bourse.Process) int { return cmp.Compare(a.RTime, b.RTime) },
	"cpu":       func(a, b bourse.Process) int { return cmp.Compare(a.CPU, b.CPU) },
	"rss":       func(a, b bourse.Process) int { return cmp.Compare(a.RSS, b.RSS) },
	"command":   func(a, b bourse.Process) int { return cmp.Compare(a.Command, b.Command) },
	"directory": func(a, b bourse.Process) int { return cmp.Compare(a.Directory, b.Directory) },
}

// machineProcesses lists a machine's processes.
func (h *machineHandler) machineProcesses(w http.ResponseWriter, r *endpoint.Request) error {
	by, order := r.URL.Query().Get("sort_by"), r.URL.Query().Get("order")
	compare, ok := processOrders[by]
	if !ok || order != "" && order != "asc" && order != "desc" {
		return bourse.Errorf(bourse.CodeInvalid, "invalid sort_by or order: use pid, stime, rtime, cpu, rss, command or directory, and asc or desc")
	}
	to, err := h.targetOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	list, err := fabric.MachineProcesses.Call(ctx, h.Workers, to.worker, to.id)
	if err != nil {
		return endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Reading, err)
	}
	slices.SortStableFunc(list, compare)
	if order == "desc" {
		slices.Reverse(list)
	}
	return endpoint.WriteJSON(w, http.StatusOK, list)
}
