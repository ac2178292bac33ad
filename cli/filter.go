package cli

import (
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// CheckFilters returns the error of a list that is empty because its filters
// name a region or a worker that there is not; "" names none. A worker is not
// looked for with a token that may not see workers.
func (s *Shell) CheckFilters(ctx context.Context, region bourse.Region, worker bourse.WorkerID) error {
	if region != "" {
		list, err := s.Client().Regions(ctx)
		if err != nil {
			return err
		}
		known := make([]bourse.Region, len(list.Regions))
		for i, r := range list.Regions {
			known[i] = r.Code
		}
		if _, err := bourse.ParseRegions(string(region), known); err != nil {
			return err
		}
	}
	if worker == "" {
		return nil
	}
	list, err := s.Client().Workers(ctx)
	if bourse.CodeOf(err) == bourse.CodeForbidden {
		return nil
	}
	if err != nil || slices.ContainsFunc(list, func(w machinesapi.Worker) bool { return w.ID == worker }) {
		return err
	}
	return Hint(bourse.Errorf(bourse.CodeNotFound, "there is no worker %s", bourse.Quoted(string(worker))), "bourse worker list")
}
