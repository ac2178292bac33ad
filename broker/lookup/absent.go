package lookup

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

// AbsentWorkers describes the absent workers of the cluster. A worker that was killed or is unreachable has the status
// down; a worker that left cleanly has the status stopped. Removed workers are not included.
func (s *Sources) AbsentWorkers(ctx context.Context, absent []bourse.Absence) []machinesapi.Worker {
	if len(absent) == 0 {
		return nil
	}
	rows, err := s.View.UnreachableWorkers(ctx)
	if err != nil {
		s.viewFailed(ctx, err)
	}
	byID := make(map[bourse.WorkerID]inventory.UnreachableWorker, len(rows))
	for _, r := range rows {
		byID[r.ID] = r
	}
	var out []machinesapi.Worker
	for _, a := range absent {
		if a.Removed {
			continue
		}
		row, known := byID[a.ID]
		out = append(out, show(&a, row, known))
	}
	return out
}

func show(a *bourse.Absence, row inventory.UnreachableWorker, known bool) machinesapi.Worker {
	w := machinesapi.Worker{
		ID: a.ID, Region: a.Region, Address: a.Address, Tag: a.Tag.String(), Leaving: a.Leaving, Status: machinesapi.WorkerDown,
		Since: a.Since.UTC(), Machines: row.Machines, Volumes: row.Volumes,
	}
	if a.Leaving {
		w.Status = machinesapi.WorkerStopped
	}
	switch {
	case !row.HeardAt.IsZero():
		w.Since = row.HeardAt.UTC()
	case known:
		w.Earlier = true
	}
	return w
}

// HostStatus returns a phrase to append to an error about a machine. It explains why the machine's worker is absent.
// If the worker is not absent, HostStatus returns "".
func (s *Sources) HostStatus(ctx context.Context, m *bourse.Machine) string {
	_, absent := s.Directory.All()
	i := slices.IndexFunc(absent, func(a bourse.Absence) bool { return a.ID == m.Worker })
	if i < 0 {
		return ""
	}
	list := s.AbsentWorkers(ctx, absent[i:i+1])
	if len(list) == 0 {
		return ""
	}
	return ", and " + UnreachableReason(&list[0])
}

// UnreachableReason returns a phrase that explains why a worker does not respond.
func UnreachableReason(w *machinesapi.Worker) string {
	since := "since"
	if w.Earlier {
		since = "since before"
	}
	word := "is DOWN"
	if w.Status == machinesapi.WorkerStopped {
		word = "has stopped,"
	}
	return fmt.Sprintf("worker %s %s %s %s", w.ID, word, since, w.Since.UTC().Format(time.RFC3339))
}
