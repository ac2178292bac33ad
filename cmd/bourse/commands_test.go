package main

import (
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

var line = clitest.Line(commands)

func TestUsageErrorsAreInvalid(t *testing.T) {
	for _, args := range [][]string{
		{"foo"},
		{"machine", "foo"},
		{"machine", "run"},
		{"machine", "run", "host", "--nope"},
		{"machine", "list", "extra"},
		{"machine", "logs", "x", "--tail", "many"},
		{"order", "show"},
		{"order", "show", "../etc"},
		{"dev", "--workers", "0"},
		{"machine", "run", "host", "--vm-memory", "NaN", "--", "x"},
		{"machine", "run", "host"},
		{"machine", "run", "host", "-n", "a/b", "--", "x"},
		{"machine", "run", "host", "--vm-cpus", "-1", "--", "x"},
		{"machine", "run", "host", "--deadline", "-1s", "--", "x"},
		{"machine", "run", "host", "--restart", "maybe", "--", "x"},
		{"machine", "run", "host", "--order-id", "x", "--", "x"},
		{"machine", "signal", "-s", "SIGNOPE", "148e21ea1d5389"},
		{"machine", "signal", "148e21ea1d5389", "SIGHUP"},
		{"machine", "wait", "--state", "asleep", "148e21ea1d5389"},
		{"app", "create", "Bad Name"},
		{"serve", "worker"},
		{"machine", "destroy", "148e21ea1d5389"},
		{"app", "destroy", "shop"},
	} {
		got := line.Run(t, append([]string{"--api", "http://127.0.0.1:1"}, args...)...)
		if got.Code != 2 || !strings.HasPrefix(got.Err, "error: ") || got.Out != "" {
			t.Errorf("%q: exit status %d, out %q, err %q; want 2 and an error", args, got.Code, got.Out, got.Err)
		}
	}
}

// everyCommand calls look with every command, including those that only group others.
func everyCommand(look func(c *cobra.Command)) {
	env := cli.Env{Getenv: func(string) string { return "" }}
	env.Out, _ = clitest.Buffer("")
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		look(c)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cli.Root(&cli.Shell{Env: env}, commands))
}

// TestEveryCommandUsesTheDirectorysApp checks that every command with --app reads the
// configuration in the working directory before it contacts the API. Each one must
// therefore report a broken configuration.
func TestEveryCommandUsesTheDirectorysApp(t *testing.T) {
	var paths []string
	everyCommand(func(c *cobra.Command) {
		if f := c.Flags().Lookup("app"); f != nil && c.HasParent() && f.Value.Type() == "string" {
			paths = append(paths, strings.TrimPrefix(c.CommandPath(), "bourse "))
		}
	})
	if len(paths) < 40 {
		t.Fatalf("only %d commands have the flag --app", len(paths))
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("fly.toml", []byte("app = \"shop\nbroken"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		var got clitest.Result
		for _, words := range [][]string{{}, {"x"}, {"x", "y"}} {
			if got = line.Run(t, slices.Concat([]string{"--api", "http://127.0.0.1:1"}, strings.Fields(path), words)...); strings.Contains(got.Err, "fly.toml:1:") {
				break
			}
		}
		if got.Code != 2 || !strings.Contains(got.Err, "fly.toml:1:") {
			t.Errorf("bourse %s: %+v, want an error about fly.toml", path, got)
		}
	}
}

// TestFlagHelpFitsNextToFlags checks that no flag's placeholder is so long that the
// help moves all descriptions to separate lines.
func TestFlagHelpFitsNextToFlags(t *testing.T) {
	looked := 0
	everyCommand(func(c *cobra.Command) {
		looked++
		for line := range strings.Lines(c.LocalFlags().FlagUsagesWrapped(80)) {
			if strings.HasSuffix(line, " \n") {
				t.Errorf("%s --help: the description does not fit next to the flag: %q", c.CommandPath(), line)
			}
		}
	})
	if looked < 50 {
		t.Errorf("found only %d commands", looked)
	}
}

func TestHints(t *testing.T) {
	for name, tt := range map[string]struct {
		got  clitest.Result
		want []string
	}{
		"no API": {
			line.Run(t, "--api", "http://127.0.0.1:1", "machine", "list"),
			[]string{"bourse dev", "--api", "127.0.0.1:1"},
		},
		"no such machine": {
			line.Against(t, clitest.Failure(bourse.CodeNotFound, "machine not found"), "machine", "status", "148e21ea1d5389", "-a", "shop"),
			[]string{"148e21ea1d5389", "bourse machine list -a shop"},
		},
		"no such app": {
			line.Against(t, clitest.Failure(bourse.CodeNotFound, "app not found"), "machine", "run", "host", "-a", "shop", "--", "true"),
			[]string{"bourse app create shop"},
		},
		"outcome unknown": {
			line.Against(t, clitest.Failure(bourse.CodeTimeout, "no answer"), "machine", "run", "host", "--order-id", "01JD3V7K7Y5C5ZQ7W1R2M3N4P5", "--", "true"),
			[]string{"bourse order show 01JD3V7K7Y5C5ZQ7W1R2M3N4P5", "--order-id 01JD3V7K7Y5C5ZQ7W1R2M3N4P5"},
		},
		"no terminal for the confirmation": {
			line.Run(t, "machine", "destroy", "148e21ea1d5389"),
			[]string{"--yes"},
		},
		"token": {
			line.Against(t, clitest.Failure(bourse.CodeUnauthorized, "who are you"), "app", "list"),
			[]string{"--token", "BOURSE_API_TOKEN"},
		},
	} {
		for _, want := range tt.want {
			if !strings.Contains(tt.got.Err, want) {
				t.Errorf("%s: %q does not mention %q", name, tt.got.Err, want)
			}
		}
	}
}

// TestEachShortageHasARow checks that the output has one row for each resource of which
// a worker has too little, with the wanted and free amounts, wherever refusals are
// shown.
func TestEachShortageHasARow(t *testing.T) {
	d := clitest.RefusedDecision()
	d.Rounds[0].Refusals = []bourse.Refusal{{
		Worker: "gru-3", Region: "gru", Reason: bourse.RefusedResource, Resource: "memory", Wanted: 2048, Free: 512, Detail: "insufficient memory",
		Also: []bourse.Shortage{{Resource: "cpu", Wanted: 1500, Free: 1000}, {Resource: "gpu.a10", Wanted: 2, Free: 1}},
	}}
	rows := []*regexp.Regexp{
		regexp.MustCompile(`(?m)^ *gru-3 +gru +memory +2 GiB +512 MiB`),
		regexp.MustCompile(`(?m)^ *gru-3 +gru +cpu +1\.5 \S+ +1 `),
		regexp.MustCompile(`(?m)^ *gru-3 +gru +gpu\.a10 +2 +1\b`),
	}
	refused := machinesapi.ErrorBody{
		Error: "no worker in gru could fill the order", Status: machinesapi.StatusInsufficientCapacity, Code: bourse.CodeInsufficient,
		OrderID: d.Order, Refusals: d.Rounds[0].Refusals,
	}
	for name, got := range map[string]clitest.Result{
		"order show":  line.Against(t, clitest.Replies(http.StatusOK, d), "order", "show", string(d.Order)),
		"quote":       line.Against(t, clitest.Replies(http.StatusOK, d), "quote", "host", "--vm-memory", "2GiB", "--", "true"),
		"machine run": line.Against(t, clitest.Replies(http.StatusUnprocessableEntity, refused), "machine", "run", "host", "--vm-memory", "2GiB", "--", "true"),
	} {
		for _, row := range rows {
			if found := row.FindAllString(got.Out+got.Err, -1); len(found) != 1 {
				t.Errorf("%s: found %d rows that match %s, want 1:\n%s%s", name, len(found), row, got.Out, got.Err)
			}
		}
	}
}

// TestCommandsAreDocumented checks that each command's help has a short description and
// an example, and that docs/commands.md has exactly one row per command with the same
// description. -update rewrites the rows.
func TestCommandsAreDocumented(t *testing.T) {
	const file = "../../docs/commands.md"
	sentences := map[string]string{}
	everyCommand(func(c *cobra.Command) {
		if c.Hidden || c.HasSubCommands() && c.Example == "" {
			return // a command with subcommands only groups them, unless it has its own example
		}
		if c.Short == "" || c.Example == "" {
			t.Errorf("%s: the help has no short description or no example", c.CommandPath())
		}
		sentences[c.CommandPath()] = c.Short
	})
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, missing := withRows(string(page), sentences)
	for _, command := range missing {
		t.Errorf("docs/commands.md has no row for %s or for another command of the same noun: start a table", command)
	}
	if *clitest.Update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil { //nolint:gosec // a source file
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(string(page), "\n")); diff != "" {
		t.Errorf("docs/commands.md is out of date (-want +got): run go test -run TestCommandsAreDocumented ./cmd/bourse -update, "+
			"and add the output of --json to new rows\n%s", diff)
	}
}

// commandRow matches a table row in docs/commands.md: the command, its description, and
// the rest.
var commandRow = regexp.MustCompile("^\\| `(bourse [^`]*)` \\| ([^|]*) \\|(.*)")

// withRows returns the page with one row for each command. sentences contains the
// commands' descriptions. Existing rows keep their position and their --json column.
// New rows are added after the last command with the same noun. missing contains the
// commands whose noun has no rows yet.
func withRows(page string, sentences map[string]string) (text string, missing []string) {
	lacks, last := maps.Clone(sentences), map[string]string{} // last contains the last command of each noun
	for line := range strings.Lines(page) {
		if row := commandRow.FindStringSubmatch(line); row != nil {
			delete(lacks, row[1])
			last[nounOf(row[1])] = row[1]
		}
	}
	var out strings.Builder
	for line := range strings.Lines(page) {
		row := commandRow.FindStringSubmatch(line)
		if row == nil {
			out.WriteString(line)
			continue
		}
		if sentence, ok := sentences[row[1]]; ok {
			fmt.Fprintf(&out, "| `%s` | %s |%s\n", row[1], sentence, row[3])
		}
		for _, command := range slices.Sorted(maps.Keys(lacks)) {
			if noun := nounOf(command); last[noun] == row[1] {
				fmt.Fprintf(&out, "| `%s` | %s |  |\n", command, lacks[command])
				delete(lacks, command)
			}
		}
	}
	return out.String(), slices.Sorted(maps.Keys(lacks))
}

// nounOf returns a command without its last word.
func nounOf(command string) string { return command[:strings.LastIndex(command, " ")] }

// notInCLI lists the API calls that no command uses, with the reasons.
var notInCLI = map[string]string{
	"Lease.Acquire":    "leases are for programs that work on the same machine; a command is too short to need one",
	"Lease.Release":    "see Lease.Acquire",
	"Lease.Get":        "machine status shows the lease",
	"Cordon":           "for deploys and spare tests, whose plans do it",
	"Metadata.All":     "machine status shows the metadata",
	"Metadata.Get":     "machine status shows the metadata",
	"Metadata.Set":     "machine run sets metadata; later changes are for programs that store notes there",
	"Metadata.Patch":   "see Metadata.Set",
	"Metadata.Delete":  "see Metadata.Set",
	"Health":           "for load balancers and supervisors of brokers",
	"Volumes.Update":   "volume create sets the same properties",
	"Secrets.Get":      "secrets list shows all of them",
	"Secrets.Set":      "secrets set sets several at once",
	"Secrets.Delete":   "secrets unset removes several at once",
	"Releases.Current": "releases shows all of them",
}

// TestEachCallHasACommand checks that some command uses each API call, or that notInCLI contains a reason why not.
func TestEachCallHasACommand(t *testing.T) {
	code := sourceOfCommands(t)
	called, listed := map[string]bool{}, maps.Clone(notInCLI)
	for _, m := range regexp.MustCompile(`(?:Client\(\)|\bclient|machinesapi\.Client\))\.([A-Z]\w*)(?:\(.*?\)\.([A-Z]\w*)\()?`).FindAllStringSubmatch(code, -1) {
		called[m[1]], called[m[1]+"."+m[2]] = true, true
	}
	// These functions of cli packages return a group of calls. Find them and the method
	// that they call.
	for _, f := range regexp.MustCompile(`func (\w+)\(.*\) machinesapi\.\w+ \{\s+return .*Client\(\)\.(\w+)\(`).FindAllStringSubmatch(code, -1) {
		for _, m := range regexp.MustCompile(`\b`+f[1]+`\(.*?\)\.([A-Z]\w*)\(`).FindAllStringSubmatch(code, -1) {
			called[f[2]+"."+m[1]] = true
		}
	}
	for _, f := range regexp.MustCompile(`\bmachinesapi\.([A-Z]\w*)\(`).FindAllStringSubmatch(code, -1) {
		called[f[1]] = true
	}
	for _, name := range everyCall(t) {
		reason := listed[name]
		switch {
		case !called[name] && reason == "":
			t.Errorf("no command calls %s: add a command, or a reason to notInCLI", name)
		case called[name] && reason != "":
			t.Errorf("a command calls %s: remove it from notInCLI", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("notInCLI contains %s, which is not a call", name)
	}
}

func sourceOfCommands(t *testing.T) string {
	var code strings.Builder
	err := fs.WalkDir(os.DirFS("../../cli"), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(filepath.Join("../../cli", name))
		code.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return code.String()
}

// everyCall returns the names of the client's calls, and of the functions that have a client as a parameter. If a
// method returns a group of calls, the names of these calls begin with the method's name.
func everyCall(t *testing.T) []string {
	names := functionsOfClients(t)
	for m := range reflect.TypeFor[*machinesapi.Client]().Methods() {
		if m.Type.NumOut() == 1 && m.Type.Out(0).Kind() == reflect.Struct {
			if _, group := m.Type.Out(0).FieldByName("Client"); group {
				for below := range m.Type.Out(0).Methods() {
					names = append(names, m.Name+"."+below.Name)
				}
				continue
			}
		}
		names = append(names, m.Name)
	}
	return names
}

// functionsOfClients returns the names of machinesapi's functions that have a client as a parameter.
func functionsOfClients(t *testing.T) []string {
	files, err := filepath.Glob("../../machinesapi/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range regexp.MustCompile(`(?m)^func ([A-Z]\w*)(?:\[.*?\])?\(.*\*Client\b`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, f[1])
		}
	}
	return names
}

// TestSuggestedCommandsExist checks that each suggestion for another program's word is an existing command, and that
// the word itself is not a command.
func TestSuggestedCommandsExist(t *testing.T) {
	root := cli.Root(&cli.Shell{Env: cli.Env{Getenv: func(string) string { return "" }}}, commands)
	for noun, words := range cli.Synonyms {
		for word, command := range words {
			below := strings.Fields(noun)
			if c, _, err := root.Find(append(below, strings.Fields(command)...)); err != nil || c.HasSubCommands() && c.Name() != "serve" {
				t.Errorf("%s %s: the suggested command %s does not exist", noun, word, command)
			}
			if c, _, err := root.Find(append(below, word)); err == nil && c.Name() == word {
				t.Errorf("%s %s is a command and needs no suggestion", noun, word)
			}
		}
	}
}

// TestCommandsBeginWithTheProgramsPath checks that suggested commands work even if the
// program is not in PATH.
func TestCommandsBeginWithTheProgramsPath(t *testing.T) {
	for args, want := range map[string]string{
		"ps":                 "  try: bin/bourse machine list\n",
		"machine list":       "  try: bin/bourse dev",
		"machine run":        "error: usage: bin/bourse machine run [flags] IMAGE [COMMAND...]\n",
		"--help":             "\n  bin/bourse dev  ",
		"machine run --help": "\n  bin/bourse machine run nginx --region gru --port 80\n",
	} {
		env := cli.Env{Getenv: func(string) string { return "" }, Program: "bin/bourse"}
		env.In, _ = clitest.Buffer("")
		out, text := clitest.Buffer("")
		env.Out, env.Err = out, out
		line.Main(t.Context(), env, append([]string{"--api", "http://127.0.0.1:1"}, strings.Fields(args)...)...)
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s:\n%s\nwant %q in it", args, text, want)
		}
	}
}
