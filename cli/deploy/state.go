package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// appState holds an app's current state.
type appState struct {
	deploy.State
	missing  bool              // the app does not exist
	releases []release.Release // the app's releases, newest first
}

// readState shows a spinner while it reads the current state of an app.
func readState(ctx context.Context, s *cli.Shell, app bourse.AppName) (*appState, error) {
	defer cli.Spin(s.Err, "reading app "+cli.Clean(string(app)))()
	return requestState(ctx, s.Client(), app)
}

// requestState reads the current state of an app.
func requestState(ctx context.Context, client *machinesapi.Client, app bourse.AppName) (*appState, error) {
	out := &appState{State: deploy.State{App: app}}
	var silent, silentVolumes []bourse.WorkerID
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		out.Machines, silent, err = client.Machines(ctx, app, machinesapi.ListMachines{})
		return err
	})
	g.Go(func() (err error) {
		out.Volumes, silentVolumes, err = client.Volumes(app).List(ctx)
		return err
	})
	g.Go(func() (err error) {
		out.releases, err = client.Releases(app).List(ctx, 0)
		return err
	})
	if err := g.Wait(); err != nil {
		if bourse.CodeOf(err) == bourse.CodeNotFound {
			return &appState{State: deploy.State{App: app}, missing: true}, nil
		}
		return nil, err
	}
	if silent = slices.Compact(slices.Sorted(slices.Values(append(silent, silentVolumes...)))); len(silent) > 0 {
		names := make([]string, len(silent))
		for i := range silent {
			names[i] = string(silent[i])
		}
		return nil, cli.Hint(bourse.Errorf(bourse.CodeUnavailable, "no answer from %s, so some machines of app %s may be missing", strings.Join(names, ", "), app),
			"the same command again in a moment", "bourse worker list")
	}
	return out, nil
}

// hasUnfinished reports whether the newest release is pending or running, which means that its
// client is still working or was killed.
func (t *appState) hasUnfinished() bool {
	return len(t.releases) > 0 && (t.releases[0].Status == release.Pending || t.releases[0].Status == release.Running)
}

// requireApp returns an error if the app does not exist.
func (t *appState) requireApp() error {
	if !t.missing {
		return nil
	}
	return cli.Hint(bourse.Errorf(bourse.CodeNotFound, "app %s does not exist", t.App), "bourse app list", "bourse deploy, to create it")
}

// digests returns the digests of an app's images by name, so that the plan notices an image that
// was pushed again under the same name. If the registry does not answer, the image is missing from
// the result, and workers resolve its name later.
func digests(ctx context.Context, s *cli.Shell, app *deploy.App) (map[string]string, error) {
	defer cli.Spin(s.Err, "resolving images")()
	client := s.Client()
	out := map[string]string{}
	for i := range app.Groups {
		name := app.Groups[i].Config.Image
		if _, known := out[name]; known || app.Groups[i].Config.ImageKind() != bourse.RegistryImage {
			continue
		}
		ref, err := client.AppImages(app.Name).Resolve(ctx, name)
		switch bourse.CodeOf(err) {
		case "":
			out[name] = ref.Digest
		case bourse.CodeNotFound, bourse.CodeInvalid:
			return nil, fmt.Errorf("image %s: %w", name, err)
		default:
			if ctx.Err() != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// maxVersionRequests limits the number of concurrent requests for machines' versions.
const maxVersionRequests = 16

// versions fetches all machines' versions, with their configs, into have.Versions.
func versions(ctx context.Context, client *machinesapi.Client, have *appState) error {
	have.Versions = make(map[bourse.MachineID][]machinesapi.Version, len(have.Machines))
	var mu sync.Mutex // guards have.Versions
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxVersionRequests)
	for i := range have.Machines {
		m := &have.Machines[i]
		id, lost := m.ID, m.Config == nil || m.HostStatus != "" && m.HostStatus != machinesapi.HostOK
		g.Go(func() error {
			list, err := client.Versions(ctx, have.App, id)
			if code := bourse.CodeOf(err); code == bourse.CodeNotFound || code == bourse.CodeUnavailable && lost {
				return nil // the plan handles machines that are gone or whose workers do not answer
			}
			if err != nil { // without its earlier versions, the machine would look like a new one
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			have.Versions[id] = list
			return nil
		})
	}
	return g.Wait()
}
