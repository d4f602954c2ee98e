//go:build cgo

package main

/*
extern int back(int);
static int forth(int n) { return back(n) + 1; }
*/
import "C"

//export back
func back(n C.int) C.int { return n + 1 }

func called() int { return int(C.forth(1)) }
