package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
	"github.com/bourse-dev/bourse/machinesapi"
)

// updateFlags are the flags of "machine update". A setting stays unchanged if its flag is
// not set.
type updateFlags struct {
	app, image, restart, config, version string
	env, metadata, unset                 []string
	size                                 place.Size
	skip                                 bool
}

func newUpdate(s *cli.Shell) *cobra.Command {
	var f updateFlags
	c := &cobra.Command{
		Use:   "update [flags] MACHINE [-- COMMAND...]",
		Short: "Change a machine's config",
		Long: `Change a machine's config. The machine keeps its id, name, address, port, volumes,
and all settings for which you pass no flag. The old version keeps running until
the new one's image is on the host. It is then stopped, and the new version is
started. Changes that the program cannot notice, such as metadata, need no restart.

If someone else changed the machine in the meantime, nothing happens. To return to
an earlier version, list the versions with "bourse machine versions" and pass one
with --to-version.`,
		Example: `  bourse machine update web-1 --image registry.example.com/app:v3
  bourse machine update web-1 -e MODE=fast --vm-memory 1GiB
  bourse machine update web-1 --to-version 01KC3V7K7Y5C5ZQ7W1R2M3N4P8`,
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completeMachine(s, &f.app),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := resolve(c.Context(), s, f.app, args[0])
			if err != nil {
				return err
			}
			return about(update(c.Context(), s, &f, id, args[1:]), f.app, id)
		},
	}
	s.BindApp(c, &f.app)
	s.CommandLast(c)
	flags := c.Flags()
	flags.StringVarP(&f.image, "image", "i", "", "`image` of the new version")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable to set, `NAME=VALUE`; may be repeated")
	flags.StringArrayVar(&f.unset, "unset-env", nil, "`name` of an environment variable to remove; may be repeated")
	flags.StringArrayVarP(&f.metadata, "metadata", "m", nil, "metadata to set, `NAME=VALUE`; may be repeated")
	flags.StringVar(&f.restart, "restart", "", "restart `policy` when the program exits: no, on-failure or always")
	f.size.Bind(flags)
	flags.StringVar(&f.config, "machine-config", "", "JSON `file` with the complete config, or - for standard input; other flags override its settings")
	flags.StringVar(&f.version, "to-version", "", "`version` to return to; other flags override its settings")
	flags.BoolVar(&f.skip, "skip-start", false, "do not start the new version; a running machine is stopped")
	c.MarkFlagsMutuallyExclusive("machine-config", "to-version")
	cli.CompleteFixed(c, "restart", "no", "on-failure", "always")
	return c
}

func update(ctx context.Context, s *cli.Shell, f *updateFlags, id bourse.MachineID, command []string) error {
	now, err := s.Client().Machine(ctx, bourse.AppName(f.app), id)
	if err != nil {
		return err
	}
	if now.Config == nil {
		return bourse.Errorf(bourse.CodeUnavailable, "the config of machine %s is unknown because its worker does not answer", id)
	}
	config, err := f.base(ctx, s, &now)
	if err == nil {
		err = f.change(config, command)
	}
	if err != nil {
		return err
	}
	end := cli.Spin(s.Err, "updating machine "+string(id))
	m, err := s.Client().Update(ctx, bourse.AppName(f.app), id,
		machinesapi.UpdateMachine{Config: config, CurrentVersion: now.InstanceID, SkipLaunch: f.skip}, "")
	end()
	if err != nil {
		return err
	}
	place.Warn(s, m.Warnings)
	what := fmt.Sprintf("%s with version %s", m.State, m.InstanceID)
	if m.PID == now.PID && m.PID != 0 && m.Starts == now.Starts {
		what += ", without a restart"
	}
	return printAction(s, id, m, what)
}

// base returns the config to which the flags are applied: the contents of a config file, an
// earlier version, or the machine's current config.
func (f *updateFlags) base(ctx context.Context, s *cli.Shell, now *machinesapi.Machine) (*bourse.Config, error) {
	switch {
	case f.config != "":
		return readConfig(f.config)
	case f.version == "":
		return now.Config, nil
	}
	list, err := s.Client().Versions(ctx, bourse.AppName(f.app), now.ID)
	if err != nil {
		return nil, err
	}
	for _, v := range list {
		if string(v.Version) == f.version {
			return v.Config, nil
		}
	}
	return nil, cli.Hint(bourse.Errorf(bourse.CodeNotFound, "version %[2]s of machine %[1]s not found", now.ID, bourse.Quoted(f.version)),
		"bourse machine versions "+string(now.ID)+appFlag(bourse.AppName(f.app)))
}

// maxConfigFile limits the size of a config file, in bytes.
const maxConfigFile = 4 << 20

func readConfig(name string) (*bourse.Config, error) {
	in := io.Reader(os.Stdin)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, cli.FlagError("--machine-config", bourse.Errorf(bourse.CodeInvalid, "%w", err))
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxConfigFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(raw) > maxConfigFile:
		return nil, bourse.Errorf(bourse.CodeInvalid, "--machine-config: the file exceeds %d bytes", maxConfigFile)
	}
	c := new(bourse.Config)
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, cli.FlagError("--machine-config", bourse.Errorf(bourse.CodeInvalid, "%w", err))
	}
	return c, nil
}

// change applies the flags to a config.
func (f *updateFlags) change(c *bourse.Config, command []string) error {
	if f.image != "" {
		c.Image = f.image
	}
	env, err := cli.ParsePairs(f.env)
	if err != nil {
		return cli.FlagError("--env", err)
	}
	metadata, err := cli.ParsePairs(f.metadata)
	if err != nil {
		return cli.FlagError("--metadata", err)
	}
	c.Env, c.Metadata = merged(c.Env, env), merged(c.Metadata, metadata)
	for _, name := range f.unset {
		delete(c.Env, name)
	}
	if f.restart != "" {
		c.Restart = &bourse.Restart{Policy: bourse.RestartPolicy(f.restart)}
	}
	if len(command) > 0 {
		c.Init.Exec, c.Init.Cmd = nil, command
		if c.ImageKind() == bourse.HostImage {
			c.Init.Entrypoint = nil
			place.LocalProgram(&c.Init)
		}
	}
	guest := bourse.Guest{}
	if c.Guest != nil {
		guest = *c.Guest
	}
	if c.Guest, err = f.size.Change(guest); err != nil {
		return err
	}
	normal := *c
	return normal.Normalize()
}

func merged(a, b map[string]string) map[string]string {
	if len(b) == 0 {
		return a
	}
	out := map[string]string{}
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}
