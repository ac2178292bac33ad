package deploy

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

// registryFlags configure access to a registry.
type registryFlags struct {
	username string
	config   string // path of docker's config.json; "" means the default path
	insecure bool
}

func (f *registryFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.username, "registry-user", "", "user `name` at the registry; the password is read from BOURSE_REGISTRY_PASSWORD")
	flags.StringVar(&f.config, "docker-config", "", "`file` with the credentials of docker login (default: ~/.docker/config.json)")
	flags.BoolVar(&f.insecure, "insecure", false, "use plain HTTP even if the registry is not on this host")
}

// login returns the credentials from the flags and the environment. If it returns the zero
// value, the credentials in docker's config.json are used.
func (f *registryFlags) login(s *cli.Shell) (credentials.Login, error) {
	password := s.Getenv("BOURSE_REGISTRY_PASSWORD")
	if f.username != "" && password == "" {
		return credentials.Login{}, bourse.Errorf(bourse.CodeInvalid, "no password for %s: export BOURSE_REGISTRY_PASSWORD=…", bourse.Quoted(f.username))
	}
	return credentials.Login{Name: f.username, Secret: password}, nil
}

// dockerConfig returns the path of docker's config.json. It returns "" if the path cannot
// be determined.
func (f *registryFlags) dockerConfig(s *cli.Shell) string {
	if f.config != "" {
		return f.config
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

func newImagePush(s *cli.Shell) *cobra.Command {
	var f registryFlags
	var r push.Request
	c := &cobra.Command{
		Use:   "push ARCHIVE NAME",
		Short: "Push an image from a local archive to a registry",
		Long: `Push an image from an archive on this host to a registry, from which workers can
pull it. ARCHIVE is an OCI image layout or the output of "docker save": a tar file,
or a directory with the same contents. Layers that the registry has are not sent.

Registries on loopback are accessed over plain HTTP, all others over HTTPS.`,
		Example: `  docker save web -o web.tar && bourse image push web.tar registry.example.com/web:v1
  buildctl build --output type=oci,dest=web.tar …
  bourse image push web.tar localhost:5000/web`,
		Args: cli.Exactly(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveDefault // complete file names
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) (err error) {
			r.Archive, r.Name = args[0], args[1]
			if r.Login, err = f.login(s); err != nil {
				return err
			}
			r.Config, r.Insecure = f.dockerConfig(s), f.insecure
			image, err := showPush(c.Context(), s, r.Name, func(ctx context.Context, progress func(push.Progress)) (string, error) {
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
	f.bind(c.Flags())
	c.Flags().StringVar(&r.Image, "image", "", "`name`, tag or digest of the image, if the archive contains several")
	c.Flags().StringVar(&r.CA, "registry-ca", "", "PEM `file` of the CA that signed the registry's certificate")
	return c
}

// showPush runs a push, shows the progress that it reports, and returns its result.
func showPush(ctx context.Context, s *cli.Shell, name string, do func(context.Context, func(push.Progress)) (string, error)) (string, error) {
	bars := cli.Bars{Out: s.Err}
	stop := cli.Spin(s.Err, "reading")
	defer stop()
	var last push.Progress
	image, err := do(ctx, func(p push.Progress) {
		stop()
		last = p
		bars.Set(cli.Bar{Name: name, Status: "pushing", Done: p.Sent, Total: p.Total})
	})
	stop()
	_, noTLS := errors.AsType[tls.RecordHeaderError](err) // the registry uses plain HTTP, and net/http did not recognize its reply as HTTP
	if noTLS || errors.Is(err, http.ErrSchemeMismatch) {
		return image, cli.Hint(err, "the same with --insecure, because the registry uses plain HTTP")
	}
	if err == nil {
		bars.Set(cli.Bar{Name: name, Status: "pushed, " + cli.Bytes(last.Total), Over: true})
	}
	return image, err
}
