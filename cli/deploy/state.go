package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/release"
)

// there is what is known of an app before a plan is made.
type there struct {
	deploy.State
	missing  bool              // there is no such app
	releases []release.Release // newest first
}

// look asks for all that a plan needs to know of an app.
func look(ctx context.Context, s *cli.Shell, app bourse.AppName) (*there, error) {
	defer cli.Spin(s.Err, "looking at what app "+cli.Clean(string(app))+" has")()
	return read(ctx, s.Client(), app)
}

// read does what look does, without showing progress on the screen.
func read(ctx context.Context, client *machinesapi.Client, app bourse.AppName) (*there, error) {
	out := &there{State: deploy.State{App: app}}
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
			return &there{State: deploy.State{App: app}, missing: true}, nil
		}
		return nil, err
	}
	if silent = slices.Compact(slices.Sorted(slices.Values(append(silent, silentVolumes...)))); len(silent) > 0 {
		names := make([]string, len(silent))
		for i := range silent {
			names[i] = string(silent[i])
		}
		return nil, cli.Hint(bourse.Errorf(bourse.CodeUnavailable, "no answer from %s, and it is not known what machines of app %s are there", strings.Join(names, ", "), app),
			"again in a moment; who answers: bourse worker list")
	}
	return out, nil
}

// unended reports whether the newest release is pending or running: its client is still working, or was killed.
func (t *there) unended() bool {
	return len(t.releases) > 0 && (t.releases[0].Status == release.Pending || t.releases[0].Status == release.Running)
}

// mustBe returns the error of an app that there is not.
func (t *there) mustBe() error {
	if !t.missing {
		return nil
	}
	return cli.Hint(bourse.Errorf(bourse.CodeNotFound, "there is no app %s", t.App), "bourse app list", "bourse deploy makes an app")
}

// digests asks what the images of an app are now, so that one that was pushed again
// under its name is noticed. An image that cannot be asked for is left to the workers.
func digests(ctx context.Context, s *cli.Shell, app *deploy.App) (map[string]string, error) {
	defer cli.Spin(s.Err, "asking which images there are")()
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
