package deploy

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy/build"
	"github.com/bourse-dev/bourse/deploy/config"
)

// unbuilt stands for the image of a plan that is only shown: nothing is built for it.
const unbuilt = "to-be-built"

// buildFlags say what an image is built of, and where it is pushed.
type buildFlags struct {
	dockerfile, target, pushTo string
	args                       []string
}

func (b *buildFlags) bind(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&b.pushTo, "push-to", "", "build the image of the Dockerfile here, and push it under this `name`, registry/repository[:tag]")
	flags.StringVar(&b.dockerfile, "dockerfile", "", "Dockerfile to build, a `file`, instead of the configuration's")
	flags.StringVar(&b.target, "build-target", "", "`stage` of the Dockerfile to build, instead of the configuration's")
	flags.StringArrayVar(&b.args, "build-arg", nil, "build argument over the configuration's, `NAME=VALUE`; may be repeated")
}

// given reports whether there is any of the flags.
func (b *buildFlags) given() bool {
	return b.dockerfile != "" || b.target != "" || b.pushTo != "" || len(b.args) > 0
}

// over lays the flags over what the configuration says of a build.
func (b *buildFlags) over(in *config.Build) (config.Build, error) {
	out := config.Build{}
	if in != nil {
		out = *in
	}
	for _, name := range []string{out.Dockerfile, out.Ignorefile} {
		if filepath.IsAbs(name) {
			return out, bourse.Errorf(bourse.CodeInvalid, "[build] names %s, which is not below the directory of the configuration; use --dockerfile for a Dockerfile elsewhere", bourse.Quoted(name))
		}
	}
	args, err := cli.ParsePairs(b.args)
	if err != nil {
		return out, cli.FlagError("--build-arg", err)
	}
	if out.Args = maps.Clone(out.Args); out.Args == nil {
		out.Args = args
	}
	maps.Copy(out.Args, args)
	out.Target = cmp.Or(b.target, out.Target)
	if b.dockerfile != "" { // of where the command is, as files of command lines are
		out.Dockerfile, err = filepath.Abs(b.dockerfile)
	}
	return out, err
}

// buildsAs returns the name that an image is pushed as, and whether one is built: of the Dockerfile
// that the configuration names, or that is in its directory when it names no image either.
func (b *buildFlags) buildsAs(c *config.Build, dir string) (name string, wanted bool) {
	_, there := build.Dockerfile(dir, c.Dockerfile)
	return cmp.Or(b.pushTo, c.Image), b.pushTo != "" || c.Dockerfile != "" || there && c.Image == ""
}

// built returns the image to deploy: the one that is named, "" for the configuration's, or
// one that is made of a Dockerfile and pushed, where there is one and no image is named. later
// reports that it would have to be built: for a plan nothing is.
func (f *deployFlags) built(ctx context.Context, s *cli.Shell, c *config.Config, image string) (name string, later bool, err error) {
	b, err := f.build.over(c.Build)
	if err != nil {
		return "", false, err
	}
	dir := filepath.Dir(c.File())
	name, wanted := f.build.buildsAs(&b, dir)
	switch {
	case image != "" && f.build.given():
		return "", false, bourse.Errorf(bourse.CodeInvalid, "--image names an image that is there already, and the flags of a build say to build one: use one or the other")
	case image != "":
		return image, false, nil
	case !wanted && f.build.given():
		return "", false, bourse.Errorf(bourse.CodeInvalid, "--build-target and --build-arg are for a Dockerfile, and none is built: "+
			"there is none in %s, or [build] names an image; name one with --dockerfile", dir)
	case !wanted:
		return "", false, nil
	case f.only:
		return cmp.Or(name, unbuilt), true, nil
	}
	login, err := f.registry.login(s)
	if err != nil {
		return "", false, err
	}
	name, err = build.Build(ctx, build.Request{
		Dir: dir, Dockerfile: b.Dockerfile, Ignorefile: b.Ignorefile, Target: b.Target, Args: b.Args, PushTo: name,
		Login: login, Config: f.registry.dockerConfig(s), Insecure: f.registry.insecure,
	}, s.Err)
	return name, false, err
}
