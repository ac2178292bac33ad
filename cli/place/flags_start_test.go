package place

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// TestStartFlags: what the flags say of ports is what Bourse reads in their services;
// the defaults are flyctl's.
func TestStartFlags(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want workload.Service // its autostart, autostop and least number
		bad  bool
	}{
		"none":             {args: []string{"-p80"}, want: workload.Service{Autostart: true, Autostop: workload.AutostopOff}},
		"not started":      {args: []string{"-p80", "--autostart=false"}, want: workload.Service{Autostop: workload.AutostopOff}},
		"stopped":          {args: []string{"-p80", "--autostop"}, want: workload.Service{Autostart: true, Autostop: workload.AutostopStop}},
		"suspended":        {args: []string{"-p80", "--autostop=suspend", "--min-machines-running=2"}, want: workload.Service{Autostart: true, Autostop: workload.AutostopSuspend, MinRunning: 2}},
		"off":              {args: []string{"-p80", "--autostop=off"}, want: workload.Service{Autostart: true, Autostop: workload.AutostopOff}},
		"another word":     {args: []string{"-p80", "--autostop=kill"}, bad: true},
		"less than none":   {args: []string{"-p80", "--min-machines-running=-1"}, bad: true},
		"nothing to start": {args: []string{"--autostart"}, bad: true},
		"nothing to stop":  {args: []string{"--autostop"}, bad: true},
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

// The word of --autostop behind a space is not taken as the image.
func TestAutostopBehindASpace(t *testing.T) {
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	var f startFlags
	f.bind(flags)
	if err := flags.Parse([]string{"--autostop", "suspend", "nginx"}); err != nil {
		t.Fatal(err)
	}
	if err := f.taken(flags.Arg(0)); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("%v, want invalid", err)
	}
	if err := f.taken("nginx"); err != nil {
		t.Error(err)
	}
}
