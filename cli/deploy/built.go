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

// buildsAs returns the name that an image is pushed as, and whether one is built: of the Dockerfile
// that the configuration names, or that is in its directory when it names no image either.
func (f *deployFlags) buildsAs(b *config.Build, dir string) (name string, wanted bool) {
	_, there := build.Dockerfile(dir, b.Dockerfile)
	return cmp.Or(f.pushTo, b.Image), f.pushTo != "" || b.Dockerfile != "" || there && b.Image == ""
}

// built returns the image to deploy: the one that is named, "" for the configuration's, or
// one that is made of a Dockerfile and pushed, where there is one and no image is named.
func (f *deployFlags) built(ctx context.Context, s *cli.Shell, c *config.Config, image string) (string, error) {
	b := config.Build{}
	if c.Build != nil {
		b = *c.Build
	}
	dir := filepath.Dir(c.File())
	name, wanted := f.buildsAs(&b, dir)
	switch {
	case image != "" || !wanted:
		return image, nil
	case f.only:
		return cmp.Or(name, unbuilt), nil
	}
	login, err := f.registry.Login(s)
	if err != nil {
		return "", err
	}
	return build.Build(ctx, build.Request{
		Dir: dir, Dockerfile: b.Dockerfile, Ignorefile: b.Ignorefile, Target: b.Target, Args: b.Args, PushTo: name,
		Login: login, Config: f.registry.DockerConfig(s), Insecure: f.registry.Insecure,
	}, s.Err)
}
