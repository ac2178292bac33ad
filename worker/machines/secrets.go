package machines

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/machines/spec"
)

// Secrets are the secrets of machines' apps, which are known by their ids.
type Secrets interface {
	// Await waits until a start can have an app's secrets up to a version, for a
	// bounded time. Codes: unavailable.
	Await(ctx context.Context, app string, version uint64) error
	// Of returns them by name, and up to which version they are. Codes: as Await.
	Of(ctx context.Context, app string, version uint64) (map[string]string, uint64, error)
}

// withSecrets reports whether a machine gets its app's secrets. A poller's host is
// none of the cluster's, and gets none.
func withSecrets(m *bourse.Machine) bool {
	return !m.SkipSecrets && m.Config.ImageKind() != bourse.PollerImage
}

// secretsOf returns what m's program gets of its app's secrets, and their version.
func (o *operations) secretsOf(ctx context.Context, m *bourse.Machine) (map[string]string, uint64, error) {
	if !withSecrets(m) {
		return nil, 0, nil
	}
	app, err := o.appOf(m)
	if err != nil {
		return nil, 0, err
	}
	values, version, err := o.secrets.Of(ctx, app, m.Secrets)
	if err != nil {
		return nil, 0, err
	}
	if err := spec.Secrets(&m.Config, values); err != nil {
		return nil, 0, err
	}
	return values, version, nil
}

// appOf returns the id of m's app, which records of former releases do not have.
func (o *operations) appOf(m *bourse.Machine) (string, error) {
	if m.AppID != "" {
		return m.AppID, nil
	}
	app, _, err := o.state.App(m.App)
	return app.ID, err
}

// awaitSecrets refuses to start m, or to stop it for another start, while its
// secrets cannot be had.
func (ms *Machines) awaitSecrets(ctx context.Context, m *bourse.Machine, version uint64) error {
	if !withSecrets(m) {
		return nil
	}
	app, err := ms.ops.appOf(m)
	if err != nil {
		return err
	}
	return ms.ops.secrets.Await(ctx, app, max(m.Secrets, version))
}
