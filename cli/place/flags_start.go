package place

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/workload"
)

// startFlags are the flags that control how requests start and stop a machine. Their names
// and defaults are flyctl's.
type startFlags struct {
	flags     *pflag.FlagSet // used to find out which flags are set
	autostart bool
	autostop  string
	least     int
}

const autostopOff = "off"

var autostops = []string{autostopOff, "stop", "suspend"}

func (f *startFlags) bind(flags *pflag.FlagSet) {
	f.flags = flags
	flags.BoolVar(&f.autostart, "autostart", true, "start the stopped machine when a request for its ports arrives")
	flags.StringVar(&f.autostop, "autostop", autostopOff, "`action` when the machine is idle: off, stop or suspend; without a value: stop")
	flags.Lookup("autostop").NoOptDefVal = "stop"
	flags.IntVar(&f.least, "min-machines-running", 0, "minimum `number` of the app's machines per region that autostop keeps running")
}

// rejectImage rejects an image that is probably meant as the value of --autostop, because the
// user wrote a space instead of "=". The value is optional, so pflag takes the next word as
// an argument.
func (f *startFlags) rejectImage(image string) error {
	if f.flags != nil && f.flags.Changed("autostop") && slices.Contains(autostops, image) {
		return cli.FlagError("--autostop", bourse.Errorf(bourse.CodeInvalid, "%s would be taken as the image: use --autostop=%s", bourse.Quoted(image), image))
	}
	return nil
}

// apply sets the fields of services from the flags.
func (f *startFlags) apply(services []workload.ServiceConfig) error {
	for _, name := range []string{"autostart", "autostop", "min-machines-running"} {
		if len(services) == 0 && f.flags != nil && f.flags.Changed(name) {
			return bourse.Errorf(bourse.CodeInvalid, "--%s requires --port", name)
		}
	}
	if f.flags != nil && !slices.Contains(autostops, f.autostop) {
		return cli.FlagError("--autostop", bourse.Errorf(bourse.CodeInvalid, "%s: use %s, as in --autostop=stop", bourse.Quoted(f.autostop), strings.Join(autostops, ", ")))
	}
	if f.least < 0 {
		return cli.FlagError("--min-machines-running", bourse.Errorf(bourse.CodeInvalid, "%d: use 0 or more", f.least))
	}
	for i := range services {
		if f.flags != nil {
			services[i].Autostart = &f.autostart
		}
		if f.autostop != autostopOff {
			services[i].Autostop = workload.Autostop(f.autostop)
		}
		if f.least > 0 {
			services[i].MinRunning = &f.least
		}
	}
	return nil
}
