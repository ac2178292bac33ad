package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
)

// Noun is a command that only holds verbs.
func Noun(use, short string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short,
		Args: onlyVerbs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(verbs...)
	return c
}

// onlyVerbs wants none but the words of the commands below.
func onlyVerbs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknownVerb(c, args[0])
}

// Meant are the commands that people mean by words of other programs, from the
// command that they were typed below.
var Meant = map[string]map[string]string{
	"": {
		"ps": "machine list", "ls": "machine list", "list": "machine list", "jobs": "machine list",
		"run": "machine run", "create": "machine run",
		"apply": "deploy", "launch": "deploy", "rollout": "deploy", "revert": "rollback", "undo": "rollback", "history": "releases",
		"show": "machine status", "inspect": "machine status", "log": "logs",
		"exec": "machine exec", "ssh": "machine exec", "console": "machine exec", "attach": "logs",
		"start": "machine start", "stop": "machine stop", "restart": "machine restart", "wait": "machine wait",
		"kill": "machine signal", "signal": "machine signal",
		"rm": "machine destroy", "delete": "machine destroy", "destroy": "machine destroy",
		"top": "machine stats", "stats": "machine stats",
		"forward": "machine forward", "port-forward": "machine forward",
		"pull": "image pull", "nodes": "worker list", "node": "worker list", "hosts": "worker list", "members": "worker list",
		"health": "view health", "query": "sql", "server": "serve", "agent": "serve worker", "up": "dev",
	},
	"machine": {
		"create": "run", "inspect": "status", "log": "logs", "ssh": "exec", "console": "exec",
		"kill": "signal", "remove": "destroy", "top": "stats", "proxy": "forward", "port-forward": "forward",
	},
	"worker": {"status": "show", "ps": "list"},
}

// unknownVerb returns the error of a word that is no command below c, with the
// commands that may have been meant.
func unknownVerb(c *cobra.Command, word string) error {
	text := "unknown command " + bourse.Quoted(word) + " for " + bourse.Quoted(c.CommandPath())
	if !c.HasParent() {
		text = "unknown command " + bourse.Quoted(word)
	}
	var hints []string
	for _, near := range near(c, strings.ToLower(word)) {
		hints = append(hints, c.CommandPath()+" "+near)
	}
	return Hint(bourse.Errorf(bourse.CodeInvalid, "%s", text), append(hints, c.CommandPath()+" --help")...)
}

func near(c *cobra.Command, word string) []string {
	noun := ""
	if c.HasParent() {
		noun = c.Name()
	}
	if command := Meant[noun][word]; command != "" {
		return []string{command}
	}
	c.SuggestionsMinimumDistance = 2
	return c.SuggestionsFor(word)
}

// flagError returns the error of flags that a command does not have. Those
// behind a word that is no command are not the mistake: the word is.
func (s *Shell) flagError(c *cobra.Command, err error) error {
	depth := 0
	for p := c; p.HasParent(); p = p.Parent() {
		depth++
	}
	if c.HasSubCommands() && len(s.Args) > depth && !strings.HasPrefix(s.Args[depth], "-") {
		return unknownVerb(c, s.Args[depth])
	}
	if strings.Contains(c.Use, "-- COMMAND") {
		return Hint(bourse.Errorf(bourse.CodeInvalid, "%w", err), "flags of the command itself go behind --", c.CommandPath()+" --help")
	}
	return err
}
