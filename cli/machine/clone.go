package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newClone(s *cli.Shell) *cobra.Command {
	var app, region, name, volume string
	var f updateFlags
	c := &cobra.Command{
		Use:   "clone [flags] MACHINE [-- COMMAND...]",
		Short: "Create a copy of a machine",
		Long: `Create a machine with the config and the exact image of another one, by default
in the same region. The clone has its own id, name and address. A
volume belongs to only one machine, so if the original mounts one, pass --volume
with another volume or with "none".`,
		Example: `  bourse machine clone web-1 --region mad
  bourse machine clone db-1 --volume data:/var/lib/db`,
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			from, err := find(c.Context(), s, app, args[0])
			if err != nil {
				return err
			}
			if from.Config == nil {
				return bourse.Errorf(bourse.CodeUnavailable, "the config of machine %s is unknown because its worker does not answer", from.ID)
			}
			req := machinesapi.CreateMachine{Name: name, Region: region, Config: from.Config, SkipLaunch: f.skip, FirstTry: true}
			if region == "" {
				req.Region = string(from.Region)
			}
			if from.Config.ImageKind() == bourse.RegistryImage && from.ImageRef.Digest != "" {
				req.Config.Image = from.ImageRef.String()
			}
			for _, key := range []string{deploy.KeyReplaces, deploy.KeyCopies, deploy.KeyPaused, deploy.KeyCanary} {
				delete(req.Config.Metadata, key) // otherwise, deployment plans would treat the clone as a replacement
			}
			if err := cloneMounts(c, s, app, volume, &from, &req); err != nil {
				return err
			}
			if err := f.change(req.Config, args[1:]); err != nil {
				return err
			}
			order := bourse.NewOrderID()
			m, err := create(c.Context(), s, app, req, order)
			if err != nil {
				return place.Explain(s, err, app, order)
			}
			warn(s, &m)
			if s.JSON {
				return s.PrintJSON(m.Machine)
			}
			return printCreated(s, &m)
		},
	}
	s.BindApp(c, &app)
	s.CommandLast(c)
	flags := c.Flags()
	flags.StringVarP(&region, "region", "r", "", "`region`, or a list in order of preference (default: the original's)")
	flags.StringVarP(&name, "name", "n", "", "`name` of the new machine (default: generated)")
	flags.StringVarP(&volume, "volume", "v", "", "volume to mount instead of the original's, `VOLUME:/PATH`, or none")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable to set, `NAME=VALUE`; may be repeated")
	flags.StringArrayVarP(&f.metadata, "metadata", "m", nil, "metadata to set, `NAME=VALUE`; may be repeated")
	f.size.Bind(flags)
	flags.BoolVar(&f.skip, "skip-start", false, "create the machine without starting it")
	s.CompleteRegions(c)
	return c
}

// cloneMounts applies --volume to the clone's mounts. It fails if the original machine
// mounts a volume and the flag is not set.
func cloneMounts(c *cobra.Command, s *cli.Shell, app, volume string, from *machinesapi.Machine, req *machinesapi.CreateMachine) error {
	switch {
	case volume == "none":
		req.Config.Mounts = nil
		return nil
	case volume != "":
		return mountVolume(c.Context(), s, &runFlags{Flags: place.Flags{App: app, Region: req.Region, Volume: volume}}, req)
	case len(from.Config.Mounts) > 0:
		path := from.Config.Mounts[0].Path
		return cli.Hint(bourse.Errorf(bourse.CodeInvalid, "machine %s mounts volume %s, which its clone cannot also mount", from.ID, from.Config.Mounts[0].Volume),
			"--volume VOLUME:"+path, "--volume none")
	}
	return nil
}
