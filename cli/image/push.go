package image

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/image/credentials"
	"github.com/bourse-dev/bourse/image/push"
)

// RegistryFlags say how a registry is reached, and who pushes.
type RegistryFlags struct {
	Username string
	Config   string // path of docker's config.json
	Insecure bool
}

// Bind adds the flags.
func (f *RegistryFlags) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.Username, "registry-user", "", "`name` at the registry; its password is BOURSE_REGISTRY_PASSWORD")
	flags.StringVar(&f.Config, "docker-config", "", "`file` with the credentials of docker login (default ~/.docker/config.json)")
	flags.BoolVar(&f.Insecure, "insecure", false, "plain HTTP, also to a registry that is not on this host")
}

// Login returns the credentials that the flags and the environment name; the zero value: those
// of [RegistryFlags.DockerConfig].
func (f *RegistryFlags) Login(s *cli.Shell) (credentials.Login, error) {
	password := s.Getenv("BOURSE_REGISTRY_PASSWORD")
	if f.Username != "" && password == "" {
		return credentials.Login{}, bourse.Errorf(bourse.CodeInvalid, "no password for %s: export BOURSE_REGISTRY_PASSWORD=…", bourse.Quoted(f.Username))
	}
	return credentials.Login{Name: f.Username, Secret: password}, nil
}

// DockerConfig returns the path of docker's config.json; "" when there can be none.
func (f *RegistryFlags) DockerConfig(s *cli.Shell) string {
	if f.Config != "" {
		return f.Config
	}
	dir := s.Getenv("DOCKER_CONFIG")
	if home, err := os.UserHomeDir(); dir == "" && err == nil {
		dir = filepath.Join(home, ".docker")
	}
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "config.json")
}

func newPush(s *cli.Shell) *cobra.Command {
	var f RegistryFlags
	var r push.Request
	c := &cobra.Command{
		Use:   "push ARCHIVE NAME",
		Short: "Push an image of an archive here to a registry",
		Long: `Push an image of an archive on this host to a registry, from which workers fetch
it. ARCHIVE is an OCI image layout or what "docker save" writes: a tar file, or a
directory with its content. What the registry has is not sent again.

A registry on loopback is reached by plain HTTP, any other by HTTPS.`,
		Example: `  docker save web -o web.tar && bourse image push web.tar registry.example.com/web:v1
  buildctl build --output type=oci,dest=web.tar …
  bourse image push web.tar localhost:5000/web`,
		Args: cli.Exactly(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveDefault // files
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) (err error) {
			r.Archive, r.Name = args[0], args[1]
			if r.Login, err = f.Login(s); err != nil {
				return err
			}
			r.Config, r.Insecure = f.DockerConfig(s), f.Insecure
			image, err := Push(c.Context(), s, r.Name, func(ctx context.Context, progress func(push.Progress)) (string, error) {
				r.Progress = progress
				return push.Push(ctx, r)
			})
			switch {
			case err != nil:
				return err
			case s.JSON:
				return s.PrintJSON(map[string]string{"image": image})
			}
			_, err = s.Out.Write([]byte(image + "\n"))
			return err
		},
	}
	f.Bind(c.Flags())
	c.Flags().StringVar(&r.Image, "image", "", "the `name`, tag or digest of the image in the archive, which may have several")
	c.Flags().StringVar(&r.CA, "registry-ca", "", "PEM `file` of the CA that the registry's certificate is of")
	return c
}

// Push shows a person how far a push to name is, while do runs it, and returns what do returns.
func Push(ctx context.Context, s *cli.Shell, name string, do func(context.Context, func(push.Progress)) (string, error)) (string, error) {
	bars := cli.Bars{To: s.Err}
	stop := cli.Spin(s.Err, "reading")
	defer stop()
	var last push.Progress
	image, err := do(ctx, func(p push.Progress) {
		stop()
		last = p
		bars.Set(cli.Bar{Name: name, Status: "pushing", Done: p.Sent, Total: p.Total})
	})
	stop()
	_, noTLS := errors.AsType[tls.RecordHeaderError](err) // what it sent is no HTTP either, to net/http
	if noTLS || errors.Is(err, http.ErrSchemeMismatch) {
		return image, cli.Hint(err, "the same with --insecure: the registry speaks plain HTTP")
	}
	if err == nil {
		bars.Set(cli.Bar{Name: name, Status: "pushed, " + cli.Bytes(last.Total), Over: true})
	}
	return image, err
}
