package run

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// asSeen reports CodeConflict when a machine is not as the plan's maker saw it: another, whose lease
// has ended by now, was still at work then.
func (r *runner) asSeen(ctx context.Context) error {
	for id, seen := range r.plan.Seen {
		if seen.Lost {
			continue
		}
		var m machinesapi.Machine
		err := r.request(ctx, id.Tag(), quick, func(ctx context.Context) (err error) {
			m, err = r.api.Machine(ctx, id)
			return err
		})
		switch {
		case bourse.CodeOf(err) == bourse.CodeUnavailable: // its steps find out
		case bourse.CodeOf(err) == bourse.CodeNotFound:
			return errGone(id)
		case err != nil:
			return err
		case m.InstanceID != seen.Instance:
			return errChanged(id, seen.Instance, m.InstanceID)
		case m.Cordoned != seen.Cordoned || m.State == bourse.StateDestroyed || m.State == bourse.StateDestroying:
			return bourse.Errorf(bourse.CodeConflict, "machine %s was changed since the plan was made: it is %s, cordoned: %v; plan again", id, m.State, m.Cordoned)
		case m.Config != nil && deploy.Marks(m.Config.Metadata) != seen.Marks:
			return bourse.Errorf(bourse.CodeConflict, "machine %s was changed since the plan was made: it is marked with %q, was with %q; plan again",
				id, deploy.Marks(m.Config.Metadata), seen.Marks)
		}
	}
	return nil
}

// unchanged reports CodeConflict when a machine is not of the version that the plan was made for.
func (r *runner) unchanged(id bourse.MachineID, now bourse.InstanceID) error {
	if was := r.plan.Seen[id].Instance; was != "" && now != "" && was != now {
		return errChanged(id, was, now)
	}
	for i := range r.plan.Steps {
		s := &r.plan.Steps[i]
		if s.Machine == id && s.Instance != "" && now != "" && s.Instance != now {
			return errChanged(id, s.Instance, now)
		}
	}
	return nil
}

func errChanged(id bourse.MachineID, planned, now bourse.InstanceID) error {
	return bourse.Errorf(bourse.CodeConflict, "machine %s was changed since the plan was made: its version is %s, not %s; plan again", id, now, planned)
}
