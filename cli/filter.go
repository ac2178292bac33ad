package cli

import (
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// CheckFilters returns an error if the region or worker by which a list was filtered
// does not exist; "" means no filter. It does not check the worker if the token may not
// list workers.
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
	return Hint(bourse.Errorf(bourse.CodeNotFound, "worker %s not found", bourse.Quoted(string(worker))), "bourse worker list")
}
