package deploy

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy/build"
	"github.com/bourse-dev/bourse/deploy/config"
)

// unbuilt stands for the image of a plan that is only shown: nothing is built for it.
const unbuilt = "to-be-built"

// built returns the image to deploy: the one that is named, "" for the configuration's, or
// one that is made of a Dockerfile and pushed, where there is one and no image is named.
func (f *deployFlags) built(ctx context.Context, s *cli.Shell, c *config.Config, image string) (string, error) {
	b := config.Build{}
	if c.Build != nil {
		b = *c.Build
	}
	dir := filepath.Dir(c.File())
	if _, there := build.Dockerfile(dir, b.Dockerfile); image != "" || b.Image != "" && f.pushTo == "" || !there && b.Dockerfile == "" && f.pushTo == "" {
		return image, nil
	}
	if f.only {
		return cmp.Or(f.pushTo, unbuilt), nil
	}
	login, err := f.registry.Login(s)
	if err != nil {
		return "", err
	}
	return build.Build(ctx, build.Request{
		Dir: dir, Dockerfile: b.Dockerfile, Ignorefile: b.Ignorefile, Target: b.Target, Args: b.Args, PushTo: f.pushTo,
		Login: login, Config: f.registry.DockerConfig(s), Insecure: f.registry.Insecure,
	}, s.Err)
}
