#!/bin/sh
# A Java program: the compiler of the JVM, and the code that it makes.
exec java "$(dirname "$0")/Load.java"
