"""A library of custom operators for onnxruntime, compiled when a test asks for it.

onnxruntime's header is not installed with it. Functions of its C interface are found by their places in its
table of functions, which never change: the table of version 1 has 102 entries, and later ones follow.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = r"""
#include <stddef.h>
#include <stdint.h>

typedef void *(*entry)(void);                    /* a function of the table, or of the operator */
typedef struct { const entry *(*table)(uint32_t); } base;
enum { CREATE_DOMAIN = 26, ADD_OPERATOR = 27, ADD_DOMAIN = 28, DATA = 51, RANK = 61, SIZES = 62,
       ELEMENTS = 64, TYPE_AND_SHAPE = 65, INPUT = 90, OUTPUT = 91, RELEASE_SHAPE = 99 };
static const entry *table;
#define CALL(place, ...) \
    do { void *status = ((void *(*)())table[place])(__VA_ARGS__); if (status) return status; } while (0)

static void *twice(void *context) {
    void *given = NULL, *shape = NULL, *made = NULL;
    size_t rank = 0, count = 0;
    int64_t sizes[8];
    float *from = NULL, *to = NULL;
    CALL(INPUT, context, (size_t)0, &given);
    CALL(TYPE_AND_SHAPE, given, &shape);
    CALL(RANK, shape, &rank);
    CALL(SIZES, shape, sizes, rank);
    CALL(ELEMENTS, shape, &count);
    ((void (*)(void *))table[RELEASE_SHAPE])(shape);
    CALL(OUTPUT, context, (size_t)0, sizes, rank, &made);
    CALL(DATA, given, &from);
    CALL(DATA, made, &to);
    for (size_t i = 0; i < count; i++) to[i] = 2.0f * from[i] + 1.0f;
    return NULL;
}
static void *create(void) { return (void *)1; }
static const char *name(void) { return "TwiceAndOne"; }
static void *nothing(void) { return NULL; }      /* the default provider; a required operand */
static int float_type(void) { return 1; }
static size_t one(void) { return 1; }
static void compute(void *kernel, void *context) { (void)kernel; twice(context); }

static struct { uint32_t version; entry functions[12]; } operator_ = { 8, {
    (entry)create, (entry)name, nothing, (entry)float_type, (entry)one, (entry)float_type, (entry)one,
    (entry)compute, nothing, nothing, nothing, nothing } };

void *RegisterCustomOps(void *options, const base *api) {
    void *domain = NULL;
    table = api->table(8);
    CALL(CREATE_DOMAIN, "com.example", &domain);
    CALL(ADD_OPERATOR, domain, &operator_);
    CALL(ADD_DOMAIN, options, domain);
    return NULL;
}
"""
"""``com.example::TwiceAndOne``: ``y = 2 x + 1`` in float32."""


def build_library(folder: Path) -> Path:
    """Compile the library; skip the test where there is no C compiler.

    Args:
        folder: Where it goes.

    Returns:
        Its path.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, library = folder / "twice.c", folder / "twice.so"
    source.write_text(SOURCE)
    command = [
        compiler,
        "-std=gnu11",
        "-w",
        "-shared",
        "-fPIC",
        "-O1",
        "-o",
        str(library),
        str(source),
    ]
    subprocess.run(command, check=True)
    return library
