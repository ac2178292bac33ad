package build

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
)

// Builders returns the names of the supported builders, in order of preference.
func Builders() []string {
	var out []string
	for _, b := range builders {
		out = append(out, b.name)
	}
	return out
}

// builder is a program that builds images.
type builder struct {
	name  string
	works func(ctx context.Context) error // returns an error if the builder cannot be used on this host
	build func(ctx context.Context, j job) error
}

// builders contains the supported builders, in order of preference.
var builders = []builder{
	{"buildctl", answers("buildctl", "debug", "workers"), buildctl},
	{"docker", answers("docker", "version"), docker},
	{"podman", answers("podman", "info"), podman},
}

// job is a build in progress.
type job struct {
	Request
	temp    string // path of a temporary directory
	archive string // path where the builder must write the image
	out     io.Writer
}

// timeout is the time limit for checking whether a builder works, and for an interrupted builder to exit.
const timeout = 10 * time.Second

// answers returns a function that runs a program with the given arguments. The function returns an error if the program
// is not installed or fails.
func answers(program string, args ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is not installed", program)
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		c := exec.CommandContext(ctx, program, args...)
		c.WaitDelay = time.Second
		text, err := c.CombinedOutput()
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s is installed, but its daemon does not answer: %s", program, last(text, err))
	}
}

// last returns the last line of a program's output, or err if there is no output.
func last(text []byte, err error) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	line := strings.TrimSpace(lines[len(lines)-1])
	if line == "" {
		return err.Error()
	}
	return bourse.Quoted(line)
}

// find returns the builder with the given name. If name is "", it returns the first builder
// that works.
func find(ctx context.Context, name string) (builder, error) {
	var why []string
	known := false
	for _, b := range builders {
		if name != "" && name != b.name {
			continue
		}
		known = true
		err := b.works(ctx)
		if err == nil {
			return b, nil
		}
		why = append(why, err.Error())
	}
	switch {
	case ctx.Err() != nil:
		return builder{}, context.Cause(ctx)
	case !known:
		return builder{}, bourse.Errorf(bourse.CodeInvalid, "unknown builder %s: use one of %s", bourse.Quoted(name), strings.Join(Builders(), ", "))
	}
	return builder{}, bourse.Errorf(bourse.CodeFailedPrecondition,
		"this host cannot build a Dockerfile: install Docker, Podman or BuildKit (buildctl and buildkitd), "+
			"or build the image on another host, push it with bourse image push ARCHIVE NAME, and deploy it with --image NAME (%s)", strings.Join(why, "; "))
}

// buildctl builds an image with BuildKit.
func buildctl(ctx context.Context, j job) error {
	file, err := j.dockerfile()
	if err != nil {
		return err
	}
	args := []string{
		"build", "--frontend", "dockerfile.v0", "--progress", "plain",
		"--local", "context=" + j.Dir, "--local", "dockerfile=" + filepath.Dir(file),
		"--opt", "filename=" + filepath.Base(file),
	}
	if j.Target != "" {
		args = append(args, "--opt", "target="+j.Target)
	}
	for _, name := range slices.Sorted(maps.Keys(j.Args)) {
		args = append(args, "--opt", "build-arg:"+name+"="+j.Args[name])
	}
	return j.run(ctx, nil, "buildctl", append(args, "--output", "type=oci,dest="+j.archive)...)
}

// docker builds an image with buildx if buildx is installed, and otherwise with the engine's own builder. It then saves
// the image.
func docker(ctx context.Context, j job) error {
	file := under(j.Dir, j.file())
	command := []string{"build"}
	env := []string{"DOCKER_BUILDKIT=0"}
	if exec.CommandContext(ctx, "docker", "buildx", "version").Run() == nil {
		var err error
		if file, err = j.dockerfile(); err != nil {
			return err
		}
		command, env = []string{"buildx", "build", "--load", "--progress", "plain"}, nil
	} else if j.Ignorefile != "" && filepath.Clean(j.Ignorefile) != ".dockerignore" {
		return bourse.Errorf(bourse.CodeFailedPrecondition,
			"without buildx, docker reads only .dockerignore: install docker-buildx, or rename %s", j.Ignorefile)
	}
	return j.buildAndSave(ctx, env, "docker", append(command, j.words(file)...), "save")
}

// podman builds an image and saves it.
func podman(ctx context.Context, j job) error {
	args := []string{"build"}
	if j.Ignorefile != "" {
		args = append(args, "--ignorefile", under(j.Dir, j.Ignorefile))
	}
	return j.buildAndSave(ctx, nil, "podman", append(args, j.words(under(j.Dir, j.file()))...), "save", "--format", "oci-archive")
}

// buildAndSave runs a build that leaves the image in the engine's storage, and then saves
// the image to the archive.
func (j job) buildAndSave(ctx context.Context, env []string, program string, build []string, save ...string) error {
	ids := filepath.Join(j.temp, "id")
	build = append(build[:len(build)-1], "--iidfile", ids, build[len(build)-1])
	if err := j.run(ctx, env, program, build...); err != nil {
		return err
	}
	id, err := os.ReadFile(ids)
	if err != nil {
		return bourse.Errorf(bourse.CodeInternal, "%s did not report the image that it built: %w", program, err)
	}
	return j.run(ctx, env, program, append(save, "--output", j.archive, strings.TrimSpace(string(id)))...)
}

// words returns the build arguments that docker and podman have in common. The last one is the build context.
func (j job) words(file string) []string {
	out := []string{"--file", file}
	if j.Target != "" {
		out = append(out, "--target", j.Target)
	}
	for _, name := range slices.Sorted(maps.Keys(j.Args)) {
		out = append(out, "--build-arg", name+"="+j.Args[name])
	}
	return append(out, j.Dir)
}

// run runs a program. It returns an error if the program fails.
func (j job) run(ctx context.Context, env []string, program string, args ...string) error {
	c := exec.CommandContext(ctx, program, args...)
	c.Env = append(os.Environ(), env...)
	c.Stdout, c.Stderr = j.out, j.out
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGINT) }
	c.WaitDelay = timeout
	err := c.Run()
	switch {
	case ctx.Err() != nil:
		return bourse.Errorf(bourse.CodeCanceled, "the build was stopped: %w", context.Cause(ctx))
	case err != nil:
		return bourse.Errorf(bourse.CodeInvalid, "%s %s: %w; see its output", program, args[0], err)
	}
	return nil
}
