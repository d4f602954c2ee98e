//go:build !cgo

package main

func called() int { return 0 }
