package lookup

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// Has reports whether the app has a machine with this ID. It uses the view and recent replies; if
// they do not contain the machine, it asks the worker whose tag is in the ID. Errors: unavailable
// if that worker does not answer.
func (k *Machines) Has(ctx context.Context, app *bourse.App, id bourse.MachineID) (bool, error) {
	if l, ok := k.Copy(ctx, id); ok {
		return ownsMachine(app, &l.Machine), nil
	}
	worker, ok := k.Directory.ByTag(id.Tag())
	if !ok {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.Timeout)
	defer cancel()
	m, err := fabric.MachineShow.Call(ctx, k.Workers, worker, id)
	switch bourse.CodeOf(err) {
	case "":
		return ownsMachine(app, &m), nil
	case bourse.CodeUnavailable, bourse.CodeTimeout:
		return false, bourse.Errorf(bourse.CodeUnavailable, "machine %s: worker %s does not answer", id, worker.ID)
	default:
		return false, nil
	}
}

func ownsMachine(app *bourse.App, m *bourse.Machine) bool {
	return m.OwnedBy(app) && m.State != bourse.StateDestroyed
}
