package place

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// TestStartFlags checks the services' fields for different flags, and that the defaults are
// flyctl's.
func TestStartFlags(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want workload.Service // only Autostart, Autostop and MinRunning are compared
		bad  bool
	}{
		"none":                     {args: []string{"-p80"}, want: workload.Service{Autostart: true, Autostop: workload.AutostopOff}},
		"no autostart":             {args: []string{"-p80", "--autostart=false"}, want: workload.Service{Autostop: workload.AutostopOff}},
		"autostop":                 {args: []string{"-p80", "--autostop"}, want: workload.Service{Autostart: true, Autostop: workload.AutostopStop}},
		"suspend":                  {args: []string{"-p80", "--autostop=suspend", "--min-machines-running=2"}, want: workload.Service{Autostart: true, Autostop: workload.AutostopSuspend, MinRunning: 2}},
		"off":                      {args: []string{"-p80", "--autostop=off"}, want: workload.Service{Autostart: true, Autostop: workload.AutostopOff}},
		"invalid action":           {args: []string{"-p80", "--autostop=kill"}, bad: true},
		"negative number":          {args: []string{"-p80", "--min-machines-running=-1"}, bad: true},
		"autostart without a port": {args: []string{"--autostart"}, bad: true},
		"autostop without a port":  {args: []string{"--autostop"}, bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
			var f imageFlags
			f.bind(flags)
			if err := flags.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			config := bourse.Config{Image: "nginx"}
			err := f.apply(&config)
			if c.bad {
				if bourse.CodeOf(err) != bourse.CodeInvalid {
					t.Errorf("%v, want invalid", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := workload.Services(&config)
			if len(got) != 1 {
				t.Fatalf("services %+v, want one", got)
			}
			if s := got[0]; s.Autostart != c.want.Autostart || s.Autostop != c.want.Autostop || s.MinRunning != c.want.MinRunning {
				t.Errorf("%+v, want %+v", s, c.want)
			}
		})
	}
}

// TestAutostopWithSpace checks that "--autostop VALUE" with a space is rejected instead of
// using VALUE as the image.
func TestAutostopWithSpace(t *testing.T) {
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	var f startFlags
	f.bind(flags)
	if err := flags.Parse([]string{"--autostop", "suspend", "nginx"}); err != nil {
		t.Fatal(err)
	}
	if err := f.rejectImage(flags.Arg(0)); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("%v, want invalid", err)
	}
	if err := f.rejectImage("nginx"); err != nil {
		t.Error(err)
	}
}
