package host

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
)

// doctorOf returns a command line in which the doctor's checks return these findings.
func doctorOf(found ...finding) clitest.Line {
	return clitest.Of(func(s *cli.Shell) *cobra.Command {
		return newDoctor(s, func(string) []check {
			return []check{{"all", time.Minute, func(context.Context) []finding { return found }}}
		})
	})
}

func TestDoctorExitStatus(t *testing.T) {
	good, warned, bad := ok("a", "fine"), warning("b", "less", "much"), problem("c", "repair it", "broken")
	for name, c := range map[string]struct {
		found []finding
		want  int
	}{
		"nothing wrong": {[]finding{good}, 0},
		"warnings only": {[]finding{good, warned}, 0},
		"a problem":     {[]finding{bad, good, warned}, 5},
	} {
		for _, args := range [][]string{{"doctor"}, {"doctor", "--json"}} {
			if got := doctorOf(c.found...).Run(t, args...); got.Code != c.want || got.Err != "" {
				t.Errorf("%s, %q: exit status %d, %q; want %d", name, args, got.Code, got.Err, c.want)
			}
		}
	}
}

func TestDoctorJSON(t *testing.T) {
	want := []finding{problem("clock", "set it", "1h ahead"), ok("disk", "free")}
	got := doctorOf(want...).Run(t, "doctor", "--json")
	var list []finding
	if err := json.Unmarshal([]byte(got.Out), &list); err != nil {
		t.Fatalf("%v: %s", err, got.Out)
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var raw []map[string]string
	if err := json.Unmarshal([]byte(got.Out), &raw); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"check": "clock", "status": "problem", "finding": "1h ahead", "try": "set it"}, raw[0]); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

// TestDoctorWithoutConfiguration checks that the doctor performs all checks that need no configuration.
func TestDoctorWithoutConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bourse.toml")
	got := clitest.Of(NewDoctor).Run(t, "doctor", "--config", path, "--json")
	var list []finding
	if err := json.Unmarshal([]byte(got.Out), &list); err != nil {
		t.Fatalf("%v: %s%s", err, got.Out, got.Err)
	}
	first := list[0]
	if first.Check != "configuration" || first.Status != statusOK || !strings.Contains(first.Finding, path) {
		t.Errorf("first finding %+v, want one about the missing configuration", first)
	}
	seen := map[string]bool{}
	for _, f := range list {
		seen[f.Check] = true
		if f.Status != statusOK && f.Try == "" {
			t.Errorf("%+v contains no advice", f)
		}
	}
	for _, name := range []string{"ports", "disk", "cgroups", "containerd", "networks", "volumes", "limits", "DNS"} {
		if !seen[name] {
			t.Errorf("%s was not checked", name)
		}
	}
}

// A check that hangs does not prevent other checks from being reported.
func TestExamineWithHangingCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := make(chan struct{})
		found := examine(t.Context(), []check{
			{"disk", time.Second, func(context.Context) []finding {
				<-disk // the check hangs even after ctx is done
				return nil
			}},
			{"slow", time.Second, func(ctx context.Context) []finding {
				<-ctx.Done()
				return []finding{warning("slow", "wait", "%v", ctx.Err())}
			}},
			{"quick", time.Second, func(context.Context) []finding { return []finding{ok("quick", "a"), ok("quick", "b")} }},
		})
		close(disk)
		var got []string
		for _, f := range found {
			got = append(got, f.Check+" "+string(f.Status))
		}
		if diff := cmp.Diff([]string{"disk warning", "slow warning", "quick ok", "quick ok"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
