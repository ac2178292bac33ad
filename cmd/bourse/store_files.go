package main

import (
	"time"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/store"
)

func checkStore(dir string) (cli.StoreReport, error) {
	r, err := store.Check(dir)
	return cli.StoreReport(r), err
}

func salvageStore(dir string) (cli.StoreReport, error) {
	r, err := store.Salvage(dir, time.Now())
	return cli.StoreReport(r), err
}
