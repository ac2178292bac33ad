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

// unbuiltImage is the image name that a plan shows if the image would have to be built and has
// no name yet.
const unbuiltImage = "to-be-built"

// buildFlags contains the flags for building and pushing an image.
type buildFlags struct {
	dockerfile, target, pushTo string
	args                       []string
}

func (b *buildFlags) bind(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&b.pushTo, "push-to", "", "build the Dockerfile, and push the image under this `name`, registry/repository[:tag]")
	flags.StringVar(&b.dockerfile, "dockerfile", "", "`path` of the Dockerfile to build, instead of the one in the configuration")
	flags.StringVar(&b.target, "build-target", "", "`stage` of the Dockerfile to build, instead of the one in the configuration")
	flags.StringArrayVar(&b.args, "build-arg", nil, "build argument, `NAME=VALUE`, overriding the configuration; may be repeated")
}

// given reports whether any of the flags is set.
func (b *buildFlags) given() bool {
	return b.dockerfile != "" || b.target != "" || b.pushTo != "" || len(b.args) > 0
}

// applyTo applies the flags to a configuration's build section, which may be nil, and returns
// the resulting section.
func (b *buildFlags) applyTo(in *config.Build) (config.Build, error) {
	out := config.Build{}
	if in != nil {
		out = *in
	}
	for _, name := range []string{out.Dockerfile, out.Ignorefile} {
		if filepath.IsAbs(name) {
			return out, bourse.Errorf(bourse.CodeInvalid, "[build] names %s, which is outside the directory of the configuration; --dockerfile accepts any path", bourse.Quoted(name))
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
	if b.dockerfile != "" { // the path is relative to the working directory, like other paths on the command line
		out.Dockerfile, err = filepath.Abs(b.dockerfile)
	}
	return out, err
}

// buildsAs returns the name under which the image is pushed, and whether an image has to be built.
// An image has to be built if --push-to is set, if the configuration names a Dockerfile, or if
// there is a Dockerfile in dir and the configuration names no image.
func (b *buildFlags) buildsAs(c *config.Build, dir string) (name string, wanted bool) {
	_, there := build.Dockerfile(dir, c.Dockerfile)
	return cmp.Or(b.pushTo, c.Image), b.pushTo != "" || c.Dockerfile != "" || there && c.Image == ""
}

// built builds and pushes the image if necessary, and returns the name of the image to deploy. It
// returns "" if the configuration names the image. With --plan, it does not build the image, but
// reports in unbuilt that the image would have to be built.
func (f *deployFlags) built(ctx context.Context, s *cli.Shell, c *config.Config, image string) (name string, unbuilt bool, err error) {
	b, err := f.build.applyTo(c.Build)
	if err != nil {
		return "", false, err
	}
	dir := filepath.Dir(c.File())
	name, wanted := f.build.buildsAs(&b, dir)
	switch {
	case image != "" && f.build.given():
		return "", false, bourse.Errorf(bourse.CodeInvalid, "--image names an existing image, and other flags configure a build: use one or the other")
	case image != "":
		return image, false, nil
	case !wanted && f.build.given():
		return "", false, bourse.Errorf(bourse.CodeInvalid, "--build-target and --build-arg require a Dockerfile: "+
			"there is none in %s, or [build] names an image; use --dockerfile", dir)
	case !wanted:
		return "", false, nil
	case f.only:
		return cmp.Or(name, unbuiltImage), true, nil
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
